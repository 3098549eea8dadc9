"""What AKS's clusters and pools of nodes share: their states, what is under way on them, and stopping it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import Condition, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import errors, operations
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.rows import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.providers.azure.client import Azure

SERVICE = "containerservice"
CLUSTER_TYPE = "Microsoft.ContainerService/managedClusters"
POOL_TYPE = f"{CLUSTER_TYPE}/agentPools"
LABEL = "cloudrec.io/nodes"  # cpu or gpu


class BusyError(Exception):
    """Something is under way on the cluster or the pool; a little later it is not."""


class AksDriver(AzureDriver):
    """Handles clusters or pools of nodes: AKS makes one change at a time, each an operation of minutes."""

    poll_s = 5.0

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._stopping: set[str] = set()  # what was told to stop whatever it is at
        self._changing: set[str] = set()  # what this process is changing

    @property
    def aks(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """AKS's client."""
        return self.azure.client(SERVICE)

    def verdict(self, error: Exception) -> Verdict:
        """What is under way ends."""
        return Verdict.RETRY if isinstance(error, BusyError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what AKS is at."""
        if isinstance(error, BusyError):
            return CloudrecError(
                f"AKS is still at work on {error}", remedy="run the command again: it goes on from here"
            )
        return super().explain(error)

    def await_end(self, identity: str) -> None:
        """Let the next change begin once the one before it has ended.

        Raises:
            BusyError: it has not.
            OperationFailedError: it has, and failed.
        """
        condition, reason = self.condition(self.kind, identity)
        if condition is Condition.PENDING:
            raise BusyError(identity)
        if identity in self._changing:
            self._changing.discard(identity)
            if condition is not Condition.READY:
                raise self.failure(identity) or errors.OperationFailedError(condition.value, reason)

    def write(self, identity: str, call: Callable[..., Any], *names: str, row: Any) -> None:  # noqa: ANN401 - the SDK's model
        """Write a thing as it was read and then changed, unless somebody else has written it since.

        Raises:
            BusyError: always, so that whoever changes comes back, and sees what is left to do.
        """
        matches = MatchConditions.IfNotModified if row.e_tag else None
        self.started(identity, call, *names, row, etag=row.e_tag, match_condition=matches)

    def started(self, identity: str, call: Callable[..., Any], *arguments: object, **parameters: Any) -> None:  # noqa: ANN401 - the SDK's own
        """Begin one change of several.

        Raises:
            BusyError: always, so that whoever changes comes back, and sees what is left to do.
        """
        self.begin(identity, call, *arguments, **parameters)
        self._changing.add(identity)
        raise BusyError(identity)

    def stop(self, identity: str, row: Any, abort: Callable[..., Any], *names: str) -> None:  # noqa: ANN401 - the SDK's model
        """Stop what is under way on a thing that is to go: its removal would wait for that.

        Args:
            identity: of the thing.
            row: the thing, as Azure describes it.
            abort: the SDK's method that stops the newest operation on it.
            names: that method's arguments.

        Raises:
            BusyError: it was told to stop, and has not yet.
        """
        if told_by(row)[0] is not Condition.PENDING:
            return
        if identity not in self._stopping:
            try:
                operations.begin(abort, *names)
            except HttpResponseError as error:
                if self.verdict(error) is Verdict.LOST or errors.is_transient(error):
                    raise
                return  # nothing that can be stopped: the removal itself tells what it waits for
            self._stopping.add(identity)
        raise BusyError(identity)


def told_by(row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
    """Tell how far a cluster or a pool has come, and why it failed, as far as the thing itself tells."""
    condition, reason = state_of(row)
    error = _error_of(row)
    if condition is not Condition.FAILED or error is None:
        return condition, reason
    return (Condition.UNAVAILABLE if errors.is_capacity(error) else condition), str(error)


def _error_of(row: Any) -> errors.OperationFailedError | None:  # noqa: ANN401 - the SDK's model
    told = row.status and row.status.provisioning_error
    if not told:
        return None
    return errors.OperationFailedError(str(told.code or "Failed"), errors.joined(told.as_dict()))


def minor(version: str) -> tuple[int, int]:
    """Return major and minor of a version such as 1.34 or 1.34.2."""
    major, of_major, *_ = version.split(".")
    return int(major), int(of_major)


def agrees(version: str, wanted: str) -> bool:
    """Tell whether a version is the wanted one, which may leave the patch to Azure."""
    return version == wanted or version.startswith(f"{wanted}.")
