"""What all drivers of Azure share: its errors, and the operations that its changes are."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from cloudrec.cloud.driver import CloudDriver
from cloudrec.engine.graph import Condition, Verdict
from cloudrec.providers.azure import errors, operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.client import Azure

_FAILED = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


class AzureDriver(CloudDriver):
    """Handles one kind of Azure's resources. Identities are resource ids, as `ids` writes them.

    A subclass looks things up in `fetch`, and begins what Azure answers before it is done with `begin`: the
    operation is followed in `condition`, begun again where it failed for a reason that passes, and given to
    the engine's journal.
    """

    refusals = (AzureError, errors.OperationFailedError)

    def __init__(self, azure: Azure) -> None:
        super().__init__()
        self.azure = azure
        self._changes: dict[str, operations.Change] = {}
        self._lock = threading.Lock()

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
        if condition in _FAILED and seen.condition is Condition.READY:
            return seen  # it is what it was, and differs from what is asked for as it did
        return replace(seen, condition=condition, reason=reason)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Ask the change that is under way how far it has come, and else the thing itself."""
        change = self._changes.get(identity)
        if change is None:
            return super().condition(kind, identity)
        progress = operations.look(self.azure, change.operation)
        if not progress.is_done:
            return (Condition.DELETING if change.is_removal else Condition.PENDING), ""
        if progress.error is None:
            self._forget(identity, change)
            return super().condition(kind, identity)
        return self._failed(identity, change, progress.error)

    def _failed(
        self, identity: str, change: operations.Change, error: errors.OperationFailedError
    ) -> tuple[Condition, str]:
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
        if change.is_removal:
            raise error
        told = self.explain(error)
        return (Condition.UNAVAILABLE if verdict is Verdict.UNAVAILABLE else Condition.FAILED), told.message

    def begin(
        self,
        identity: str,
        call: Callable[..., Any],
        *arguments: object,
        is_removal: bool = False,
        **parameters: object,
    ) -> str:
        """Begin a change of a thing, and return the thing's identity.

        Args:
            identity: of the thing.
            call: one of the SDK's `begin_` methods.
            arguments: its own.
            is_removal: whether it takes the thing away.
            parameters: the method's own.
        """
        operation = operations.begin(call, *arguments, **parameters)
        again = partial(self.begin, identity, call, *arguments, is_removal=is_removal, **parameters)
        with self._lock:
            self._changes.pop(identity, None)
            if operation:
                self._changes[identity] = operations.Change(
                    operation=operation, again=again, is_removal=is_removal
                )
        return identity

    def _forget(self, identity: str, change: operations.Change) -> None:
        with self._lock:
            if self._changes.get(identity) is change:
                del self._changes[identity]

    def operation(self, identity: str) -> str:
        """Return what is under way on this thing, or failed last, for another process."""
        change = self._changes.get(identity)
        return change.text if change else ""

    def resume(self, identity: str, operation: str) -> None:
        """Take up what another process began."""
        self._changes.setdefault(identity, operations.Change.of(operation))

    def failure(self, identity: str) -> errors.OperationFailedError | None:
        """Return why the last change of a thing failed; None where it did not, or goes on."""
        change = self._changes.get(identity)
        return operations.look(self.azure, change.operation).error if change else None

    def is_absent(self, error: Exception) -> bool:
        """Tell whether the thing, or what it would be in, is not there."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by Azure's code, and by what it says, whether the call may be made again."""
        return errors.verdict(error, self.azure.grants)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Azure's error means."""
        return errors.explain(error)
