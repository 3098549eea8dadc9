"""Placement policies: nodes of one zone that stand close together.

One is bound to a place by the first machines that are made under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition
from cloudrec.providers.gcp.driver import ComputeDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

PLACEMENT = "placement-policy"


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
