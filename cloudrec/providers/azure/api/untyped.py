"""The calls for a type of resource that the SDK in use has no client for, by the API for any type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.providers.azure.api import ids
from cloudrec.providers.azure.api.tracked import TrackedCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure


@dataclass(frozen=True, kw_only=True)
class UntypedCalls:
    """The calls for the resources of one type.

    Attributes:
        azure: the subscription.
        of_type: the type, such as Microsoft.Logic/workflows.
        version: of the API.
    """

    azure: Azure
    of_type: str
    version: str

    @property
    def tracked(self) -> TrackedCalls[models.resources.GenericResource]:
        """The calls, as a driver of tracked resources takes them."""
        return TrackedCalls(list=self.listed, get=self.read, put=self.put, delete=self.delete)

    def listed(self, group: str) -> Iterable[models.resources.GenericResource]:
        """Return the resources of the type in a group, without their properties.

        The list is Azure's index of all resources: a role that may not read the type may read it.
        """
        listed = self.azure.resources.resources.list_by_resource_group
        return listed(group, filter=f"resourceType eq '{self.of_type}'")

    def read(self, group: str, name: str) -> models.resources.GenericResource:
        """Return a resource with its properties."""
        return self.azure.resources.resources.get_by_id(self._id(group, name), api_version=self.version)

    def put(self, group: str, name: str, row: models.resources.GenericResource, **more: Any) -> object:  # noqa: ANN401 - the SDK's own
        """Begin to create or change a resource."""
        return self.azure.resources.resources.begin_create_or_update_by_id(
            self._id(group, name), row, api_version=self.version, **more
        )

    def delete(self, group: str, name: str, **more: Any) -> object:  # noqa: ANN401 - the SDK's own
        """Begin to delete a resource."""
        of = self.azure.resources.resources
        return of.begin_delete_by_id(self._id(group, name), api_version=self.version, **more)

    def _id(self, group: str, name: str) -> str:
        return ids.resource(self.azure.subscription, group, self.of_type, name)


@dataclass(frozen=True)
class Provisioned:
    """The provisioning state of a resource whose properties are a mapping, as `rows.state_of` takes it."""

    provisioning_state: object


def properties_of(row: models.resources.GenericResource) -> Mapping[str, Any]:
    """Return the properties of a resource; empty if a list has left them out."""
    found: object = row.properties
    return found if isinstance(found, Mapping) else {}
