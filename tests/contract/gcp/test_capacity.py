"""Capacity types of Google Cloud: the queue, reservations, and the calendar of future reservations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.errors import SpecError, UsageError
from cloudrec.home import Home
from cloudrec.providers.gcp import preflight
from cloudrec.providers.gcp.offers import FLEX, RESERVED
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import ClusterSpec
from tests.contract.gcp.support import Site, whole
from tests.dates import in_days
from tests.sandbox.gcp.support import PROJECT
from tests.sandbox.gcp.support import Gcp as Cloud

TYPE, ZONE = "a2-highgpu-8g", "us-central1-a"
MEGA = "a3-megagpu-8g"
START = in_days(21)


def cluster(**given: Any) -> ClusterSpec:
    asked = {"name": "t", "provider": "gcp", "owner": "tester", "nodes": 2, "instance_types": [MEGA], **given}
    return ClusterSpec.model_validate(asked)


def provider(cloud: Cloud, folder: Path) -> GcpProvider:
    return GcpProvider(Home(root=folder / "home"), cloud.env)


def reserve(cloud: Cloud, count: int) -> None:
    """A reservation of the user: `held`."""
    body = {
        "name": "held",
        "specificReservation": {"count": count, "instanceProperties": {"machineType": TYPE}},
        "specificReservationRequired": True,
    }
    path = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/reservations"
    assert cloud.rest("POST", path, body)[0] == 200
    cloud.advance(60)


def only_pool(site: Site) -> Any:
    listed = site.cloud.gke.list_node_pools(parent=site.layout().cluster_path).node_pools
    (pool,) = [pool for pool in listed if pool.name != "cpu"]
    return pool


def test_flex_start_asks_the_queue_alone(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=[ZONE], nodes=2, capacity="flex-start")
    assert {way.capacity for way in site.layout().places()} == {FLEX}
    site.up()
    pool = only_pool(site)
    assert pool.config.flex_start
    assert not pool.management.auto_repair
    assert (pool.autoscaling.total_min_node_count, pool.autoscaling.total_max_node_count) == (0, 2)
    assert pool.config.max_run_duration.total_seconds() == 7 * 86400
    assert pool.config.reservation_affinity.consume_reservation_type.name == "NO_RESERVATION"


def test_reserved_nodes_are_used_where_the_zone_has_no_others(cloud: Cloud, tmp_path: Path) -> None:
    reserve(cloud, 2)
    cloud.control(capacity={f"{TYPE}/{ZONE}/on-demand": 0})
    site = whole(cloud, tmp_path, zones=[ZONE], nodes=2, settings={"reservation": "held", "compact": False})
    assert {way.capacity for way in site.layout().places()} == {RESERVED}
    site.up()
    assert list(only_pool(site).config.reservation_affinity.values) == ["held"]


def test_a_reservation_with_too_few_nodes_is_refused_before_anything_is_made(
    cloud: Cloud, tmp_path: Path
) -> None:
    reserve(cloud, 1)
    site = whole(cloud, tmp_path, zones=[ZONE], nodes=2, settings={"reservation": "held"})
    (found,) = [each for each in preflight.findings(site.gcp, site.layout()) if "reservation" in each.check]
    assert (found.ok, found.blocks) == (False, True)
    assert "1 x a2-highgpu-8g in us-central1-a" in found.found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"capacity": "block", "settings": {"reservation": "held"}}, "settings.reservation is held"),
        ({"capacity": "flex-start", "settings": {"reservation": "held"}}, "queue uses no reservation"),
        ({"settings": {"max_run_duration": "2d"}}, "not from the queue"),
        ({"block_hours": 48}, "block_hours is set, but cluster.capacity is on-demand"),
    ],
)
def test_capacity_types_that_exclude_each_other_are_refused(
    cloud: Cloud, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        provider(cloud, tmp_path).check(cluster(**given))
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_a_type_that_is_sold_as_spot_or_queued_only_is_no_on_demand_candidate(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = whole(cloud, tmp_path, zones=[ZONE], nodes=1, instance_types=["a3-highgpu-1g"])
    assert site.layout().places() == []
    (found,) = [each for each in preflight.findings(site.gcp, site.layout()) if "machine type" in each.check]
    assert "sold as spot or flex-start only" in found.found
    assert found.blocks
    queued = whole(cloud, tmp_path, zones=[ZONE], instance_types=["a3-highgpu-1g"], capacity="flex-start")
    assert {way.capacity for way in queued.layout().places()} == {FLEX}


def test_the_calendar_shows_time_and_zone_and_no_price(cloud: Cloud, tmp_path: Path) -> None:
    zones = ("us-central1-a", "us-central1-b")
    cloud.control(calendar={f"{MEGA}/{zone}": 4 for zone in zones})
    (offer,) = provider(cloud, tmp_path).block_offers(cluster(block_hours=48, block_start=START))
    block = offer.block
    assert (block.zone, block.start, block.hours) == (zones[0], START, 48)
    assert block.upfront_usd is None
    assert block.node_usd is None
    wanted = cluster(block_hours=48, zones=zones[1:])
    assert [each.block.zone for each in provider(cloud, tmp_path).block_offers(wanted)] == [zones[1]]
    assert provider(cloud, tmp_path).block_offers(cluster(block_hours=48, nodes=5)) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block_hours": 12}, "24 to 2160 hours"),
        ({"block_hours": 91 * 24}, "24 to 2160 hours"),
        ({"block_hours": 48, "block_start": "2029-01-01T00:00:00Z"}, "plans 120 days ahead"),
        ({}, "block_hours is not set"),
    ],
)
def test_a_time_that_google_does_not_plan_is_refused(
    cloud: Cloud, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        provider(cloud, tmp_path).block_offers(cluster(**given))


def test_blocks_of_a_provider_without_them_are_a_usage_error(cloud: Cloud, tmp_path: Path) -> None:
    application = AppContext(home=Home(root=tmp_path / "home"), environment=cloud.env)
    with pytest.raises(UsageError, match="'local' has no blocks"):
        app.block_offers(application, ClusterSpec(provider="local"))
