"""Proximity placement groups: nodes of one zone that stand close together.

One stands wherever its first machine comes to stand, so that each zone has its own; only a new pool can join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from azure.mgmt.compute import models

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.azure.aks import PREFIX
from cloudrec.providers.azure.driver import AzureDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource

PLACEMENT = "proximity-placement-group"


class PlacementDriver(AzureDriver):
    """Handles proximity placement groups."""

    kind = PLACEMENT

    @property
    def groups(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The calls about them."""
        return self.azure.client("compute").proximity_placement_groups

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the resource group's, or all."""
        if cluster is not None:
            rows = self.azure.rows(self.groups.list_by_resource_group, f"{PREFIX}{cluster}")
        else:
            rows = self.azure.rows(self.groups.list_by_subscription)
        return [
            Observed(
                kind=PLACEMENT,
                name=name_of(row.tags, row.name),
                identity=row.id,
                condition=Condition.READY,
                properties={"zone": "".join(row.zones or ())},
                tags=row.tags,
                location=self.azure.region,
            )
            for row in rows
            if is_ours(row.tags or {}, cluster) and row.location == self.azure.region
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        self.azure.read(self.groups.get, *_names(identity))
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it; where it stands is decided with its first machine."""
        del token, identities
        body = models.ProximityPlacementGroup(
            location=self.azure.region,
            tags=dict(resource.tags),
            zones=[resource.properties["zone"]],
            properties=models.ProximityPlacementGroupProperties(proximity_placement_group_type="Standard"),
        )
        made = self.groups.create_or_update(*resource.properties["names"], body)
        return str(made.id)

    def remove(self, observed: Observed) -> None:
        """Delete it; refused while machines stand in it."""
        self.groups.delete(*_names(observed.identity))


def _names(identity: str) -> tuple[str, str]:
    parts = identity.split("/")
    return parts[4], parts[-1]
