"""Proximity placement groups: nodes of one zone that stand close together.

A group stands wherever its first machine comes to stand, and only a new pool can join one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

PLACEMENT = "proximity-placement-group"


class PlacementDriver(GroupDriver):
    """Handles proximity placement groups; they are made and removed at once."""

    kind = PLACEMENT
    service, collection = "compute", "proximity_placement_groups"
    of_type = "Microsoft.Compute/proximityPlacementGroups"
    listing, putting, deleting = "list_by_resource_group", "create_or_update", "delete"

    def named(self, resource: Resource) -> str:
        """Return its name; sizes have capitals in theirs, and ids are written without."""
        return super().named(resource).lower()

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return what a new group is to be."""
        del identities
        return self.models.ProximityPlacementGroup(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            zones=[resource.properties["zone"]],
            properties=self.models.ProximityPlacementGroupProperties(
                proximity_placement_group_type="Standard"
            ),
        )

    def state(self, row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
        """It has no states."""
        del row
        return Condition.READY, ""

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell its zone."""
        return {"zone": "".join(row.zones or ())}
