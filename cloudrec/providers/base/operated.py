"""Drivers of clouds that return an operation for a changing call: it is recorded, polled, and retried.

Such a cloud responds before the change is done. Only the operation reports why a change failed; the resource
itself just has the state "failed", or does not exist.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from cloudrec.engine.graph import Condition, ErrorVerdict, P_contra
from cloudrec.providers.base.driver import CloudDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.engine.graph import Observed, Resource

_REMOVAL = "removal "
_LACKING = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


class OperationFailedError(Exception):
    """The cloud accepted a call, and its operation failed later."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class OperationProgress:
    """The state of an operation; `error` is the reason if it failed."""

    is_done: bool
    error: OperationFailedError | None = None


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change in progress, or the last one if it failed.

    Attributes:
        operation: as `OperatedDriver.progress` takes it.
        again: begins the change again; None if another process began it.
        is_removal: whether it deletes the resource.
    """

    operation: str
    again: Callable[[], object] | None = None
    is_removal: bool = False

    @property
    def text(self) -> str:
        """The change as a text for the journal; `of` reads it."""
        return f"{_REMOVAL}{self.operation}" if self.is_removal else self.operation

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the change that another process wrote with `text`."""
        return cls(operation=text.removeprefix(_REMOVAL), is_removal=text.startswith(_REMOVAL))


class OperatedDriver(CloudDriver[P_contra]):
    """The driver of one kind of such a cloud's resources; the engine's journal stores its operations.

    A subclass looks resources up in `fetch` and begins changes with `begin`. `condition` polls the operation,
    and begins the change again if it failed for a transient reason.

    Attributes:
        outlives_failure: whether a resource that reports READY is usable although its last change failed.
    """

    outlives_failure: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[str, _Change] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def progress(self, operation: str) -> OperationProgress:
        """Return an operation's state from one call; an operation that the cloud no longer knows is done."""

    def fetch(self, resource: Resource[P_contra]) -> Observed | None:
        """Look a resource up, with the state that it reports itself; by default among those of a search."""
        return super().find(resource)

    def find(self, resource: Resource[P_contra]) -> Observed | None:
        """Look a resource up; its last change, if known, decides its state and reason."""
        seen = self.fetch(resource)
        if seen is None or seen.identity not in self._changes:
            return seen
        condition, reason = self.condition(self.kind, seen.identity)
        if condition is Condition.GONE:
            return None
        if self.outlives_failure and condition in _LACKING and seen.condition is Condition.READY:
            return seen  # unchanged and usable: it still differs from the request, so the change is repeated
        return replace(seen, condition=condition, reason=reason)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the state of the change in progress, or else of the resource itself."""
        change = self._changes.get(identity)
        if change is None:
            return super().condition(kind, identity)
        progress = self.progress(change.operation)
        if not progress.is_done:
            return (Condition.DELETING if change.is_removal else Condition.PENDING), ""
        if progress.error is None:
            self._forget(identity, change)
            return super().condition(kind, identity)
        return self._failed(identity, change, progress.error)

    def _failed(self, identity: str, change: _Change, error: OperationFailedError) -> tuple[Condition, str]:
        """Begin a failed change again if its reason is transient; else return the state and the reason."""
        verdict = self.verdict(error)
        if verdict in {ErrorVerdict.RETRY, ErrorVerdict.LOST} and change.again is not None:
            try:
                change.again()
            except self.refusals as refusal:
                if not (change.is_removal and self.is_absent(refusal)):
                    raise
                self._forget(identity, change)
                return Condition.GONE, ""
            return (Condition.DELETING if change.is_removal else Condition.PENDING), error.message
        if change.is_removal and change.again is None:  # begun by another process
            # This process cannot repeat it, so it is as if it had not begun: the engine deletes again if
            # needed.
            self._forget(identity, change)
            return super().condition(self.kind, identity)
        if change.is_removal:
            raise error
        explained = self.explain(error)
        return (
            Condition.UNAVAILABLE if verdict is ErrorVerdict.UNAVAILABLE else Condition.FAILED
        ), explained.message

    def begin(self, identity: str, call: Callable[[], str], *, is_removal: bool = False) -> str:
        """Begin a change of a resource, and return the resource's identity.

        Args:
            identity: the resource's identity.
            call: makes the changing call, and returns its operation as `progress` takes it; empty if the
                change is done already. It is called again if the operation fails for a transient reason.
            is_removal: whether the change deletes the resource.
        """
        operation = call()
        again = partial(self.begin, identity, call, is_removal=is_removal)
        with self._lock:
            self._changes.pop(identity, None)
            if operation:
                self._changes[identity] = _Change(operation=operation, again=again, is_removal=is_removal)
        return identity

    def _forget(self, identity: str, change: _Change) -> None:
        with self._lock:
            # Another thread may have begun a newer change of the resource meanwhile.
            if self._changes.get(identity) is change:
                del self._changes[identity]

    def operation(self, identity: str) -> str:
        """Return the change in progress or the last failed one, for another process; empty if none."""
        change = self._changes.get(identity)
        return change.text if change else ""

    def resume(self, identity: str, operation: str) -> None:
        """Follow a change that another process began, unless this process began a newer one."""
        self._changes.setdefault(identity, _Change.of(operation))

    def failure(self, identity: str) -> OperationFailedError | None:
        """Return the error of a resource's last change; None if it did not fail or is in progress."""
        change = self._changes.get(identity)
        return self.progress(change.operation).error if change else None
