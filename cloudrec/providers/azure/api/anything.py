"""Resources of any type, read by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.mgmt.resource.resources.operations import ResourcesOperations

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure


class Anything:
    """Reads resources of any type.

    Azure's list of resources may still have deleted ones for a while
    (https://github.com/Azure/azure-rest-api-specs/issues/21221); a read of a resource by its id is exact.
    """

    def __init__(self, azure: Azure) -> None:
        self.azure = azure
        self._versions: dict[str, dict[str, str]] = {}  # namespace -> type below it -> version of the API

    @property
    def calls(self) -> ResourcesOperations:
        """The SDK's methods for resources of any type."""
        return self.azure.resources.resources

    def read(self, identity: str) -> models.resources.GenericResource | None:
        """Return a resource with its properties; None if it does not exist."""
        return self.azure.get(self.calls.get_by_id, identity, api_version=self.version(identity))

    def version(self, identity: str) -> str:
        """Return the newest stable version of the API of a resource's type; empty if Azure states none."""
        namespace, _, of_type = type_of(identity).partition("/")
        # Each type has separate versions of the API, and the calls for any type need one.
        if namespace not in self._versions:
            self._versions[namespace] = self._offered(namespace)
        return self._versions[namespace].get(of_type, "")

    def _offered(self, namespace: str) -> dict[str, str]:
        provider = self.azure.get(self.azure.resources.providers.get, namespace)
        newest = {}
        for row in (provider.resource_types if provider else None) or ():
            offered = row.api_versions or ()
            stable = [version for version in offered if "preview" not in version]
            newest[(row.resource_type or "").lower()] = max(stable or offered, default="")
        return newest


def type_of(identity: str) -> str:
    """Return a resource's type, in lower case, such as microsoft.network/loadbalancers."""
    namespace, *rest = identity.lower().rpartition("/providers/")[2].split("/")
    return "/".join([namespace, *rest[::2]])
