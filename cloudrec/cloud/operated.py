"""Drivers of clouds whose changes are operations of their own: begun, noted, followed, begun again.

Such a cloud answers a changing call before the change is done. The operation, and nothing else, tells why a
change failed: the thing itself only says that it did, or is not there.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from cloudrec.cloud.driver import CloudDriver
from cloudrec.engine.graph import Condition, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.engine.graph import Observed, Resource

_REMOVAL = "removal "
_LACKING = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


class OperationFailedError(Exception):
    """A call was accepted, and what it began failed later."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an operation has come; `error` says why it failed."""

    is_done: bool
    error: OperationFailedError | None = None


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change under way, or the one that failed last.

    Attributes:
        operation: as `OperatedDriver.progress` takes it.
        again: begins it anew; None where another process began it.
        is_removal: whether it takes the thing away.
    """

    operation: str
    again: Callable[[], object] | None = None
    is_removal: bool = False

    @property
    def text(self) -> str:
        """As another process can take it up."""
        return f"{_REMOVAL}{self.operation}" if self.is_removal else self.operation

    @classmethod
    def of(cls, text: str) -> Self:
        """Take up what another process began."""
        return cls(operation=text.removeprefix(_REMOVAL), is_removal=text.startswith(_REMOVAL))


class OperatedDriver(CloudDriver):
    """Handles one kind of such a cloud's resources; what it begins, the engine's journal keeps.

    A subclass looks things up in `fetch`, and begins changes with `begin`: the operation is followed in
    `condition`, and begun again where it failed for a reason that passes.

    Attributes:
        outlives_failure: whether what says that it is ready is so, though its last change failed.
    """

    outlives_failure: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[str, _Change] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def progress(self, operation: str) -> Progress:
        """Ask once how far an operation has come; one that the cloud has forgotten is done."""

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up, as it says of itself that it is; by default among all that a search shows."""
        return super().find(resource)

    def find(self, resource: Resource) -> Observed | None:
        """Look it up; where a change of it is known, that tells how far it has come, and why it failed."""
        seen = self.fetch(resource)
        if seen is None or seen.identity not in self._changes:
            return seen
        condition, reason = self.condition(self.kind, seen.identity)
        if condition is Condition.GONE:
            return None
        if self.outlives_failure and condition in _LACKING and seen.condition is Condition.READY:
            return seen  # it is what it was, and differs from what is asked for as it did
        return replace(seen, condition=condition, reason=reason)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Ask the change that is under way how far it has come, and else the thing itself."""
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
        """Begin a change again if it failed for a reason that passes; else tell why it failed."""
        verdict = self.verdict(error)
        if verdict in {Verdict.RETRY, Verdict.LOST} and change.again is not None:
            try:
                change.again()
            except self.refusals as refusal:
                if not (change.is_removal and self.is_absent(refusal)):
                    raise
                self._forget(identity, change)
                return Condition.GONE, ""
            return (Condition.DELETING if change.is_removal else Condition.PENDING), error.message
        if change.is_removal and change.again is None:  # begun by another process
            # As if it had not been begun: whoever wants it begins.
            self._forget(identity, change)
            return super().condition(self.kind, identity)
        if change.is_removal:
            raise error
        told = self.explain(error)
        return (Condition.UNAVAILABLE if verdict is Verdict.UNAVAILABLE else Condition.FAILED), told.message

    def begin(self, identity: str, call: Callable[[], str], *, is_removal: bool = False) -> str:
        """Begin a change of a thing, and return the thing's identity.

        Args:
            identity: of the thing.
            call: makes the changing call, and returns its operation as `progress` takes it; empty where all
                was done at once. It is made again where the operation failed for a reason that passes.
            is_removal: whether it takes the thing away.
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
            if self._changes.get(identity) is change:
                del self._changes[identity]

    def operation(self, identity: str) -> str:
        """Return what is under way on this thing, or failed last, for another process."""
        change = self._changes.get(identity)
        return change.text if change else ""

    def resume(self, identity: str, operation: str) -> None:
        """Take up what another process began."""
        self._changes.setdefault(identity, _Change.of(operation))

    def failure(self, identity: str) -> OperationFailedError | None:
        """Return why the last change of a thing failed; None where it did not, or goes on."""
        change = self._changes.get(identity)
        return self.progress(change.operation).error if change else None
