"""Blocks of Google Cloud: future reservations in calendar mode, requested after one question."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.plan import Plan
from cloudrec.errors import CloudrecError, DeclinedError, NoCapacityError, SpecError
from cloudrec.home import Home
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import BlockSpec, ClusterSpec
from tests.contract.gcp.support import fresh
from tests.sandbox.gcp.support import PROJECT, stand_in
from tests.sandbox.gcp.support import Gcp as Cloud

TYPE, ZONE = "a3-megagpu-8g", "us-central1-a"
ONE_DAY = 86400


class Block:
    """A cluster whose nodes come from a block."""

    def __init__(self, cloud: Cloud, folder: Path, **given: Any) -> None:
        self.cloud = cloud
        self.home = Home(root=folder / "home")
        asked = {
            "name": "t",
            "provider": "gcp",
            "owner": "tester",
            "access": "private",
            "nodes": 2,
            "instance_types": [TYPE],
            "capacity": "block",
            "block_hours": 48,
            **given,
        }
        self.cluster = ClusterSpec.model_validate(asked)
        self.plans: list[Plan] = []

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.home, environment=self.cloud.env)

    def up(self, **options: Any) -> None:
        def accept(plan: Plan) -> bool:
            self.plans.append(plan)
            return True

        app.up(self.application, self.cluster, decide=accept, **options)

    def bought(self) -> BlockSpec:
        (record,) = self.application.journal.clusters()
        return BlockSpec.model_validate(record.request["block"])

    def sizes(self) -> dict[str, int]:
        """The target sizes of the GPU pools."""
        managers = self.cloud.compute("InstanceGroupManagers")
        found = managers.list(project=PROJECT, zone=ZONE)
        return {row.name: row.target_size for row in found if "gpu-" in row.name}

    def pool(self) -> Any:
        parent = GcpProvider(self.home, self.cloud.env).layout(self.cluster).cluster_path
        pools = self.cloud.gke.list_node_pools(parent=parent).node_pools
        (pool,) = [pool for pool in pools if pool.name != "cpu"]
        return pool

    def start(self) -> None:
        """Let the block begin, by the stand-in's clock."""
        left = datetime.fromisoformat(self.bought().start).timestamp() - self.cloud.control()["virtual_time"]
        self.cloud.advance(left + 600)


def requests(cloud: Cloud) -> int:
    return sum(call["action"] == "futureReservations.insert" for call in cloud.calls())


@pytest.fixture
def planned(cloud: Cloud) -> Cloud:
    """The calendar has four machines."""
    fresh(cloud)
    cloud.control(calendar={f"{TYPE}/{ZONE}": 4})
    return cloud


@pytest.fixture
def apart() -> Iterator[Cloud]:
    """A separate stand-in, whose clock a test can move by days."""
    with stand_in() as cloud:
        fresh(cloud)
        cloud.control(calendar={f"{TYPE}/{ZONE}": 4}, real_times=False)
        yield cloud


def test_a_block_is_requested_once_and_its_nodes_are_made_when_it_begins(
    apart: Cloud, tmp_path: Path
) -> None:
    site, planned = Block(apart, tmp_path), apart
    site.up()
    (plan,) = site.plans
    assert plan.upfront is not None
    assert plan.upfront.usd is None
    assert f"2 x {TYPE} in {ZONE}" in plan.upfront.what
    block = site.bought()
    assert (block.zone, block.nodes, block.is_active, block.upfront_usd) == (ZONE, 2, False, None)
    assert list(site.pool().config.reservation_affinity.values) == [block.id]
    assert set(site.sizes().values()) == {0}
    (record,) = site.application.journal.clusters()
    assert record.request["expires"] == block.usable_until
    assert block.start in record.missing[0].reason

    site.start()
    site.up()
    assert requests(planned) == 1
    assert site.bought().is_active
    assert set(site.sizes().values()) == {2}
    app.down(
        site.application, provider_name="gcp", cluster_name="t", keep_data=False, decide=lambda _removal: True
    )
    assert not [line for line in planned.state() if "nodePools" in line]
    assert app.leaks(site.application, "gcp").leaks == ()


def test_a_declined_question_requests_nothing(planned: Cloud, tmp_path: Path) -> None:
    site = Block(planned, tmp_path)

    def refuse(plan: Plan) -> bool:
        raise DeclinedError(f"declined {plan.upfront}")

    with pytest.raises(DeclinedError, match="a block of 2 x a3-mega"):
        app.up(site.application, site.cluster, decide=refuse)
    assert requests(planned) == 0


def test_a_highest_price_is_not_met_by_an_unknown_one(planned: Cloud, tmp_path: Path) -> None:
    with pytest.raises(NoCapacityError, match="no price is known") as caught:
        Block(planned, tmp_path).up(most_upfront_usd=1e6)
    assert caught.value.exit_code == 4
    assert requests(planned) == 0


def test_a_request_that_google_declines_makes_no_cluster(planned: Cloud, tmp_path: Path) -> None:
    site = Block(planned, tmp_path)

    def taken(_plan: Plan) -> bool:
        planned.control(calendar={f"{TYPE}/{ZONE}": 0})  # by another, between the advice and the request
        return True

    with pytest.raises(NoCapacityError, match=r"has not approved the block \S+ \(DECLINED\)"):
        app.up(site.application, site.cluster, decide=taken)
    assert not [line for line in planned.state() if "container" in line]
    assert GcpProvider(site.home, planned.env).block_of(site.cluster) is None


def test_a_request_whose_response_is_lost_is_found_and_not_made_again(planned: Cloud, tmp_path: Path) -> None:
    site = Block(planned, tmp_path)
    planned.control(faults=[{"service": "compute", "action": "futureReservations.insert", "kind": "lost"}])
    with pytest.raises(CloudrecError, match="Google may have it"):
        site.up()
    planned.advance(600)
    site.up()
    assert requests(planned) == 1
    assert site.plans[-1].upfront is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block_hours": 12}, "24 to 2160 hours"),
        ({"nodes": 81}, "at most 80 nodes"),
        ({"settings": {"reservation": "held"}}, "settings.reservation is held"),
        ({"budget_usd": 9000.0}, "that of the block .* is not known"),
        ({"ttl": "30m"}, "before its block begins"),
    ],
)
def test_a_request_that_fits_no_block_is_refused_before_anything_is_made(
    planned: Cloud, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    site = Block(planned, tmp_path, **given)
    with pytest.raises(SpecError, match=words) as caught:
        site.up()
    assert caught.value.remedy
    assert requests(planned) == 0


def body(**changes: Any) -> dict[str, Any]:
    start = datetime.now(UTC) + timedelta(days=2)
    window = {"startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "duration": {"seconds": str(2 * ONE_DAY)}}
    return {
        "name": "one",
        "reservationName": "one",
        "reservationMode": "CALENDAR",
        "planningStatus": "SUBMITTED",
        "specificReservationRequired": True,
        "autoDeleteAutoCreatedReservations": True,
        "timeWindow": window,
        "specificSkuProperties": {"totalCount": "2", "instanceProperties": {"machineType": TYPE}},
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reservationMode": "DEFAULT"}, "reservationMode"),
        ({"autoDeleteAutoCreatedReservations": False}, "autoDelete"),
        ({"specificReservationRequired": False}, "specificReservationRequired"),
        ({"namePrefix": "two"}, "Either reservationName or namePrefix"),
        ({"timeWindow": {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-03T00:00:00Z"}}, "later"),
        (
            {"specificSkuProperties": {"totalCount": "81", "instanceProperties": {"machineType": TYPE}}},
            "1 to 80",
        ),
        (
            {"specificSkuProperties": {"totalCount": "1", "instanceProperties": {"machineType": "e2-micro"}}},
            "machineType",
        ),
    ],
)
def test_the_stand_in_refuses_what_is_no_request_in_calendar_mode(
    planned: Cloud, changes: dict[str, Any], words: str
) -> None:
    path = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/futureReservations"
    status, answer = planned.rest("POST", path, body(**changes))
    assert status == 400
    assert words in answer["error"]["message"]
