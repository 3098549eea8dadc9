"""Proximity placement groups, which keep the nodes of one zone close together.

Azure binds a group to the data center of its first machine. A pool can join a group only when it is created.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition
from cloudrec.providers.azure.api import models
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

PLACEMENT = "proximity-placement-group"


@dataclass(frozen=True, kw_only=True)
class AzurePlacementProperties(LocatedProperties):
    """The requested properties of a proximity placement group.

    Attributes:
        zone: the one that its machines are in.
        instance_type: their size.
    """

    zone: str
    instance_type: str


class AzurePlacementDriver(TrackedDriver["models.compute.ProximityPlacementGroup", AzurePlacementProperties]):
    """Handles proximity placement groups; Azure creates and deletes them within the call."""

    kind = PLACEMENT
    charge = FREE
    of_type = "Microsoft.Compute/proximityPlacementGroups"

    @property
    def calls(self) -> TrackedCalls[models.compute.ProximityPlacementGroup]:
        """The client's methods for this kind."""
        of = self.azure.compute.proximity_placement_groups
        return TrackedCalls(
            list=of.list_by_resource_group,
            get=of.get,
            put=of.create_or_update,
            delete=of.delete,
            puts_at_once=True,
            deletes_at_once=True,
        )

    def named(self, resource: Resource[AzurePlacementProperties]) -> str:
        """Return the group's name, in lower case as all identities are; it contains a VM size."""
        return super().named(resource).lower()

    def body(
        self, resource: Resource[AzurePlacementProperties], identities: Mapping[str, str]
    ) -> models.compute.ProximityPlacementGroup:
        """Return the SDK's model of a new group."""
        del identities
        # Azure takes a zone only with the sizes to expect (azure-cli's `ppg create` refuses it without).
        intent = models.compute.ProximityPlacementGroupPropertiesIntent(
            vm_sizes=[resource.properties.instance_type]
        )
        return models.compute.ProximityPlacementGroup(
            location=resource.properties.location,
            tags=dict(resource.tags),
            zones=[resource.properties.zone],
            properties=models.compute.ProximityPlacementGroupProperties(
                proximity_placement_group_type="Standard", intent=intent
            ),
        )

    def state(self, row: models.compute.ProximityPlacementGroup) -> tuple[Condition, str]:
        """Return READY: groups have no provisioning state."""
        del row
        return Condition.READY, ""

    def properties(self, row: models.compute.ProximityPlacementGroup) -> Mapping[str, Any]:
        """Return the group's zone."""
        return {"zone": "".join(row.zones or ())}
