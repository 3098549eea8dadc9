"""Placement policies: nodes of one zone that stand close together.

One is bound to a place by the first machines that are made under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.engine.graph import Condition
from cloudrec.providers.gcp import apis, offers
from cloudrec.providers.gcp.driver import ComputeDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.offers import Place
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.layout import Layout

PLACEMENT = "placement-policy"
KINDS: Mapping[str, AbstractSet[str]] = {PLACEMENT: frozenset({apis.API})}


def resources(layout: Layout) -> list[Resource]:
    """Describe a policy for each zone: what was tried in one must not stand in the way of the next."""
    zones = dict.fromkeys(way.zone for way in offers.places(layout) if is_close(layout, way))
    return [
        layout.resource(
            PLACEMENT,
            zone,
            needs=apis.needs(layout),
            properties={"path": layout.regional_path("resourcePolicies", zone)},
        )
        for zone in zones
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver."""
    return {PLACEMENT: PlacementDriver(gcp)}


def is_close(layout: Layout, way: Place) -> bool:
    """Tell whether nodes are to stand close together; those from Google's queue stand where they do."""
    is_wanted = layout.settings.compact and layout.cluster.nodes > 1
    return is_wanted and layout.hardware[way.instance_type].compact and way.market in {SPOT, ON_DEMAND}


class PlacementDriver(ComputeDriver):
    """Handles resource policies that keep machines close together."""

    kind = PLACEMENT
    collection, noun = "resource_policies", "resource_policy"
    is_regional = True

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return what a new policy is to be."""
        del resource, identities
        return {"group_placement_policy": {"collocation": "COLLOCATED"}}

    def state(self, row: Any) -> Condition:  # noqa: ANN401 - the SDK's message
        """Tell how far it has come; one that has expired has no place left."""
        return Condition.FAILED if row.status == "EXPIRED" else super().state(row)
