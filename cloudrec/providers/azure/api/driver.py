"""The base class of all drivers of Azure: its errors, and its long-running operations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.graph import P_contra
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import operations
from cloudrec.providers.base.operated import OperatedDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.engine.graph import ErrorVerdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.base.operated import OperationProgress


class AzureDriver(OperatedDriver[P_contra]):
    """Handles one kind of Azure's resources. Identities are resource ids, as `ids` writes them.

    A subclass calls `start` for a change that Azure acknowledges before it is done.
    """

    refusals = errors.REFUSALS
    # A resource whose change failed keeps its previous settings and continues to work.
    outlives_failure = True

    def __init__(self, azure: Azure) -> None:
        super().__init__()
        self.azure = azure

    def progress(self, operation: str) -> OperationProgress:
        """Return the progress of an operation, with one call to Azure."""
        return operations.look(self.azure, operation)

    def start(
        self,
        identity: str,
        call: Callable[..., object],
        *arguments: object,
        is_removal: bool = False,
        **parameters: object,
    ) -> str:
        """Begin to change a resource, and return the resource's identity.

        Args:
            identity: of the resource.
            call: one of the SDK's `begin_` methods.
            arguments: the method's positional arguments.
            is_removal: whether the change removes the resource.
            parameters: the method's keyword arguments.
        """
        once = partial(operations.begin, call, *arguments, **parameters)
        return self.begin(identity, once, is_removal=is_removal)

    def is_absent(self, error: Exception) -> bool:
        """Return whether the error means that the resource, or its parent, does not exist."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return, by the code and the message of Azure's error, whether the call may be made again."""
        return errors.verdict(error, self.azure.grants)

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error of cloudrec with the meaning of Azure's and the remedy."""
        return errors.explain(error)
