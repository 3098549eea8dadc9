"""The candidates for GPU nodes: their order and their settings."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cloudrec.engine.graph import Resource
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.network.placement import PLACEMENT
from cloudrec.providers.azure.nodes import nodes
from cloudrec.providers.azure.nodes.node_pools import GPU
from tests.unit.providers_azure.support import layout

T4, A100 = "Standard_NC4as_T4_v3", "Standard_ND96asr_v4"


def choice(**asked: Any) -> Resource:
    return next(each for each in nodes.resources(layout(**asked)) if each.kind == GPU)


def test_candidates_are_ordered_by_capacity_type_size_and_zone() -> None:
    of = choice(types=(A100, T4), capacity="spot-first", offered={T4: ("2",)})
    assert [each.name for each in of.candidates] == [
        f"t-{A100}-1-spot",
        f"t-{A100}-2-spot",
        f"t-{T4}-2-spot",
        f"t-{A100}-1-on-demand",
        f"t-{A100}-2-on-demand",
        f"t-{T4}-2-on-demand",
    ]
    names = [each.properties.requested()["pool"] for each in of.candidates]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9]{0,11}", name) for name in names)


def test_a_region_without_zones_is_tried_as_a_whole() -> None:
    (only,) = choice(zones=("",)).candidates
    assert (only.name, only.properties.requested()["zone"]) == (f"t-{A100}-anywhere-on-demand", "")


@pytest.mark.parametrize(("limit", "asked"), [(None, -1.0), (3.5, 3.5)])
def test_a_spot_pool_costs_at_most_the_limit(limit: float | None, asked: float) -> None:
    settings = {"max_price": limit} if limit else {}
    assert choice(capacity="spot", **settings).candidates[0].properties.requested()["max_price"] == asked


def test_a_regular_pool_has_no_price_limit() -> None:
    assert "max_price" not in choice().candidates[0].properties.requested()


def test_reserved_capacity_is_not_spot_capacity() -> None:
    group = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/G"
    of = choice(capacity="spot-first", capacity_reservation_group=group)
    assert {each.properties.requested()["capacity"] for each in of.candidates} == {"on-demand"}
    assert of.candidates[0].properties.requested()["reservation"] == group.lower()


def test_only_nodes_without_infiniband_use_a_proximity_placement_group() -> None:
    def placed(**asked: Any) -> list[str]:
        return [each.name for each in nodes.resources(layout(**asked)) if each.kind == PLACEMENT]

    assert placed(types=(T4,), nodes=2) == [f"t-{T4}-1", f"t-{T4}-2"]
    assert placed(types=(T4,), nodes=1) == []
    assert placed(types=(T4,), nodes=2, zones=("",)) == []
    assert placed(types=(T4,), nodes=2, proximity=False) == []
    assert placed(types=(A100,), nodes=2) == []


def test_infiniband_nodes_wait_for_their_feature() -> None:
    feature = f"{groups.REGISTRATION}/t-{groups.INFINIBAND}"
    assert feature in choice().needs
    assert feature not in choice(types=(T4,)).needs
