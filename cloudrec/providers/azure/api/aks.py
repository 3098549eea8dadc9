"""What drivers of AKS clusters and node pools share: states, changes in progress, and aborting them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import Condition, ErrorVerdict, P_contra
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import operations
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import state_of
from cloudrec.providers.base.operated import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure

    Row = models.containerservice.ManagedCluster | models.containerservice.AgentPool

SERVICE = "containerservice"
CLUSTER_TYPE = "Microsoft.ContainerService/managedClusters"
POOL_TYPE = f"{CLUSTER_TYPE}/agentPools"
LABEL = "cloudrec.io/nodes"  # cpu or gpu


class AksBusyError(Exception):
    """An operation is in progress on the cluster or the pool; the call may be made again later."""


class AksDriver(AzureDriver[P_contra]):
    """Handles clusters or node pools. AKS makes one change at a time, and each takes minutes."""

    poll_s = 3.0

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._stopping: set[str] = set()  # identities whose operation this process has aborted
        self._changing: set[str] = set()  # identities that this process is changing

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the call may be made again; it may when the operation in progress has ended."""
        return ErrorVerdict.RETRY if isinstance(error, AksBusyError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error of cloudrec that names the resource that AKS is changing."""
        if isinstance(error, AksBusyError):
            return CloudrecError(
                f"AKS is still changing {error}", remedy="run the command again: it continues from here"
            )
        return super().explain(error)

    def await_end(self, identity: str) -> None:
        """Return if no change of the resource is in progress, so that the next may begin.

        Raises:
            AksBusyError: a change is in progress.
            OperationFailedError: the change that this process began has failed.
        """
        condition, reason = self.condition(self.kind, identity)
        if condition is Condition.PENDING:
            raise AksBusyError(identity)
        if identity in self._changing:
            self._changing.discard(identity)
            if condition is not Condition.READY:
                raise self.failure(identity) or OperationFailedError(condition.value, reason)

    def write(self, identity: str, call: Callable[..., object], *names: str, row: Row) -> None:
        """Begin to write a resource that was read and changed, unless another process has written it since.

        Raises:
            AksBusyError: always: the engine calls `change` again, which makes the next change.
        """
        # A write replaces the whole resource, and would undo what another process has changed meanwhile.
        matches = MatchConditions.IfNotModified if row.e_tag else None
        self.started(identity, partial(call, etag=row.e_tag, match_condition=matches), *names, row)

    def started(self, identity: str, call: Callable[..., object], *arguments: object) -> None:
        """Begin one change of several.

        Raises:
            AksBusyError: always: the engine calls `change` again, which makes the next change.
        """
        self.start(identity, call, *arguments)
        self._changing.add(identity)
        raise AksBusyError(identity)

    def stop(self, identity: str, row: Row, abort: Callable[..., object], *names: str) -> None:
        """Abort the operation in progress on a resource, so that AKS can delete the resource.

        Args:
            identity: of the resource.
            row: the resource, as Azure describes it.
            abort: the SDK's method that aborts the newest operation on it.
            names: that method's arguments.

        Raises:
            AksBusyError: the operation is being aborted.
        """
        if condition_of(row)[0] is not Condition.PENDING:
            return
        # The engine calls again until the operation has ended, but it is aborted only once.
        if identity not in self._stopping:
            try:
                operations.begin(abort, *names)
            except HttpResponseError as error:
                if self.verdict(error) is ErrorVerdict.LOST or errors.is_transient(error):
                    raise
                return  # the operation cannot be aborted: the deletion itself reports what it waits for
            self._stopping.add(identity)
        raise AksBusyError(identity)


def condition_of(row: Row) -> tuple[Condition, str]:
    """Return the condition of a cluster or a pool, and why it failed as far as Azure describes it."""
    condition, reason = state_of(row)
    error = _error_of(row)
    if condition is not Condition.FAILED or error is None:
        return condition, reason
    return (Condition.UNAVAILABLE if errors.is_capacity(error) else condition), str(error)


def _error_of(row: Row) -> OperationFailedError | None:
    error = row.status and row.status.provisioning_error
    if not error:
        return None
    return OperationFailedError(str(error.code or "Failed"), errors.joined(error.as_dict()))


def minor(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version such as 1.34 or 1.34.2."""
    major, of_major, *_ = version.split(".")
    return int(major), int(of_major)


def agrees(version: str, wanted: str) -> bool:
    """Return whether a version matches the requested one, which may have no patch number."""
    return version == wanted or version.startswith(f"{wanted}.")
