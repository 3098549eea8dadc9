"""What all drivers of Azure share: its errors, and the operations that its changes are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from cloudrec.cloud.operated import OperatedDriver, OperationFailedError
from cloudrec.providers.azure import errors, operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.cloud.operated import Progress
    from cloudrec.engine.graph import Verdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.client import Azure


class AzureDriver(OperatedDriver):
    """Handles one kind of Azure's resources. Identities are resource ids, as `ids` writes them.

    A subclass begins what Azure answers before it is done with `start`.
    """

    refusals = (AzureError, OperationFailedError)
    outlives_failure = True

    def __init__(self, azure: Azure) -> None:
        super().__init__()
        self.azure = azure

    def progress(self, operation: str) -> Progress:
        """Ask for the operation."""
        return operations.look(self.azure, operation)

    def start(
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
        once = partial(operations.begin, call, *arguments, **parameters)
        return self.begin(identity, once, is_removal=is_removal)

    def is_absent(self, error: Exception) -> bool:
        """Tell whether the thing, or what it would be in, is not there."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by Azure's code, and by what it says, whether the call may be made again."""
        return errors.verdict(error, self.azure.grants)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Azure's error means."""
        return errors.explain(error)
