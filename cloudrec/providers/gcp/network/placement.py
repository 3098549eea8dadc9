"""Compact placement policies: GPU nodes of one zone that are close to each other.

Google binds a policy to a place when the first machines are created with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.gcp.api import apis, sdk
from cloudrec.providers.gcp.api.driver import ComputeDriver, ComputeProperties, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.base.offers import Placement
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout

PLACEMENT = "placement-policy"
KINDS: Mapping[str, AbstractSet[str]] = {PLACEMENT: frozenset({apis.API})}


@dataclass(frozen=True, kw_only=True)
class PlacementProperties(ComputeProperties):
    """The requested properties of a placement policy: its path alone."""


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe a policy for each zone: one that is bound to a zone cannot be used in the next one."""
    zones = dict.fromkeys(way.zone for way in layout.places() if is_close(layout, way))
    return [
        layout.resource(
            PLACEMENT,
            zone,
            needs=apis.needs(layout),
            properties=PlacementProperties(path=layout.regional_path("resourcePolicies", zone)),
            hourly_usd=FREE,
        )
        for zone in zones
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {PLACEMENT: GcpPlacementDriver(gcp)}


def is_close(layout: GcpLayout, way: Placement) -> bool:
    """Return whether the nodes get a compact placement; only spot and on-demand nodes do."""
    is_wanted = layout.settings.compact and layout.cluster.nodes > 1
    return is_wanted and layout.hardware[way.instance_type].compact and way.capacity in {SPOT, ON_DEMAND}


class GcpPlacementDriver(ComputeDriver["sdk.compute.ResourcePolicy", PlacementProperties]):
    """Handles resource policies that keep machines close together."""

    kind = PLACEMENT
    charge = FREE
    noun = "resource_policy"
    is_regional = True

    @property
    def calls(self) -> sdk.compute.ResourcePoliciesClient:
        """The client of resource policies."""
        return self.gcp.rest(sdk.compute.ResourcePoliciesClient)

    def body(self, resource: Resource[PlacementProperties]) -> sdk.compute.ResourcePolicy:
        """Return the message for a policy of compact placement."""
        del resource
        group = sdk.compute.ResourcePolicyGroupPlacementPolicy(collocation="COLLOCATED")
        return sdk.compute.ResourcePolicy(group_placement_policy=group)

    def state(self, row: sdk.compute.ResourcePolicy) -> Condition:
        """Return the condition of the policy; an expired policy cannot be used any more."""
        return Condition.FAILED if row.status == "EXPIRED" else state_of(row.status)
