"""`leaks` and `down` name what others left with cloudrec's tags, or in its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.graph import Observed
from cloudrec.errors import ResourcesRemainError
from cloudrec.providers.base.audit import UNMANAGED
from tests.contract.aws.support import Site
from tests.contract.aws.support_audit import GIB, Planter
from tests.sandbox.aws.support import Aws

REGIONS = ("us-east-1", "us-west-2", "eu-west-1")
HOURS = 730
# In us-east-1, from the price list; None: it has no price of the type.
PRICES: dict[str, float | None] = {
    "instance": 0.192,
    "volume": GIB * 0.08 / HOURS,
    "snapshot": GIB * 0.05 / HOURS,
    "image": 0.0,
    "capacity reservation": 2 * 21.9576,
    "network interface": 0.0,
    "elastic IP": 0.005,
    "load balancer": 0.0225,
    "key": 1 / HOURS,
    **dict.fromkeys(
        (
            "VPN gateway",
            "key pair",
            "topic",
            "queue",
            "table",
            "secret",
            "database",
            "parameter",
            "repository",
            "ECS cluster",
            "log group",
        )
    ),
}
# `down` removes these itself: as cloudrec's own kinds, or as the work of the cluster's controllers.
REMOVED = frozenset({"network interface", "elastic IP", "load balancer", "key"})


@pytest.fixture(autouse=True)
def quota(aws: Aws) -> None:
    """Machines for the tests beside those of the clusters."""
    aws.control(quotas={"ec2/L-1216C47A": 1000})


def found(site: Site, **where: Any) -> dict[str, Observed]:
    """What `leaks` names, by identity."""
    return {leak.found.identity: leak.found for leak in app.leaks(site.application, "aws", **where).leaks}


def unmanaged(site: Site) -> list[str]:
    return [seen.name for seen in found(site).values() if seen.kind == UNMANAGED]


@pytest.mark.slow
def test_leaks_names_every_planted_resource_of_twenty_kinds_in_three_regions(aws: Aws, site: Site) -> None:
    planters = [Planter(aws=aws, region=region, title="ghost") for region in REGIONS]
    for planter in planters:
        planter.all()
    aws.advance(3600)  # the tagging API lags
    listed = found(site, everywhere=True)
    kinds = [kind for planter in planters for kind in planter.planted]
    named = [identity for planter in planters for identity in planter.planted.values() if identity in listed]
    print(f"{len(named)} of {len(kinds)} named")
    assert (len(set(kinds)), len(kinds), len(set(named))) == (20, 60, 60)
    assert set(kinds) == PRICES.keys()
    for kind, identity in planters[0].planted.items():
        usd = PRICES[kind]
        assert listed[identity].hourly_usd == (usd if usd is None else pytest.approx(usd, rel=0.01)), kind
    for planter in planters:
        for identity in planter.planted.values():
            assert listed[identity].location.startswith(planter.region), identity  # a volume has a zone
            assert listed[identity].cluster == "ghost"
    # Nothing else is named but the networks.
    assert {seen.kind for identity, seen in listed.items() if identity not in named} == {"leftovers"}


@pytest.mark.slow
def test_down_names_what_it_does_not_remove_and_removes_the_rest(aws: Aws, site: Site) -> None:
    site.up()
    planter = Planter(aws=aws, region="us-east-1", title="t", vpc=site.found()["vpc/t"].identity)
    planted = planter.all()
    aws.advance(3600)
    with pytest.raises(ResourcesRemainError) as refused:
        site.down()
    assert refused.value.exit_code == 5
    print(refused.value.message)
    lines = refused.value.message.splitlines()
    for kind, identity in planted.items():
        named = [line for line in lines if f"  {identity}  " in line]
        assert len(named) == (kind not in REMOVED), (kind, identity, named)
    machine = next(line for line in lines if planted["instance"] in line)
    assert "$0.19/h" in machine
    assert "remove them with the cloud's own tools" in (refused.value.remedy or "")


def test_a_healthy_cluster_has_no_unmanaged_resources(aws: Aws, site: Site) -> None:
    site.up()
    kinds = ["load-balancer", "target-group", "network-interface", "volume", "log-group", "security-group"]
    kinds += ["guardduty-endpoint"]
    aws.control(leave={"cluster": "cloudrec-t", "kinds": kinds})
    aws.advance(3600)
    assert len([entry for entry in aws.state() if ":instance:" in entry]) > 1
    assert unmanaged(site) == []


@pytest.mark.slow
def test_nothing_is_named_after_the_removal_of_a_cluster_though_the_tagging_api_lags(
    aws: Aws, tmp_path: Path
) -> None:
    site = Site(aws, tmp_path, settings={"lustre_gib": 1200})
    site.up()
    aws.advance(3600)
    site.down()  # the tagging API has not yet noticed it
    assert unmanaged(site) == []


def test_a_machine_outside_the_node_groups_of_a_living_cluster_is_named(aws: Aws, site: Site) -> None:
    site.up()
    planter = Planter(
        aws=aws, region="us-east-1", title="t", vpc=site.found()["vpc/t"].identity, is_tagged=False
    )
    planter.machines()
    (seen,) = [seen for seen in found(site).values() if seen.kind == UNMANAGED]
    assert seen.identity == planter.planted["instance"]
    assert seen.hourly_usd == pytest.approx(0.192)


def test_resources_of_others_are_not_named(aws: Aws, site: Site) -> None:
    Planter(aws=aws, region="us-east-1", title="ghost", is_tagged=False).all()
    aws.advance(3600)
    assert found(site) == {}


def test_a_list_that_the_policy_denies_is_reported_and_hides_no_other(aws: Aws, site: Site) -> None:
    planter = Planter(aws=aws, region="us-east-1", title="ghost")
    planter.machines()
    aws.advance(3600)
    denied = {"kind": "error", "status": 403, "code": "UnauthorizedOperation", "times": 99}
    text = "You are not authorized to perform this operation."
    aws.control(faults=[{**denied, "service": "ec2", "action": "DescribeSnapshots", "message": text}])
    search = app.leaks(site.application, "aws")
    assert search.unsearched == ("us-east-1: the credentials lack ec2:DescribeSnapshots",)
    assert planter.planted["volume"] in {leak.found.identity for leak in search.leaks}


def test_every_region_that_the_account_has_enabled_can_be_searched(aws: Aws, site: Site) -> None:
    regions = site.provider.regions()
    assert set(REGIONS) <= set(regions)
    rows = aws.client("ec2").describe_regions(AllRegions=True)["Regions"]
    closed = {row["RegionName"] for row in rows if row["OptInStatus"] == "not-opted-in"}
    assert closed
    assert not closed & set(regions)
