"""Machines that the cloud has taken back: `status`, `up` and `doctor` see them, whatever the group says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import NoCapacityError
from tests.contract.aws.support import Site
from tests.contract.aws.test_partial_groups import machines
from tests.sandbox.aws.support import Aws

TYPE, ZONES = "p4d.24xlarge", ("us-east-1a", "us-east-1b")
GAP = 3600


def trace(zone: str, *data: int, **more: Any) -> dict[str, Any]:
    place = {"zone": zone, "instance_type": TYPE, "capacity": "spot", "gap_seconds": GAP}
    return {**place, "data": list(data), "notice_s": 0, **more}


def spot(aws: Aws, folder: Path, *zones: str) -> Site:
    """A cluster with two spot nodes that run."""
    site = Site(aws, folder, zones=zones, nodes=2, capacity="spot", instance_types=(TYPE,))
    site.up()
    assert machines(aws) == [zones[0]] * 2
    return site


def group(aws: Aws) -> dict[str, Any]:
    eks = aws.client("eks")
    (name,) = (each for each in eks.list_nodegroups(clusterName="cloudrec-t")["nodegroups"] if "spot" in each)
    found: dict[str, Any] = eks.describe_nodegroup(clusterName="cloudrec-t", nodegroupName=name)["nodegroup"]
    return found


@pytest.mark.parametrize(("degrade_s", "status"), [(10 * GAP, "ACTIVE"), (0, "DEGRADED")])
def test_an_empty_group_is_not_ready_and_its_nodes_cost_nothing(
    aws: Aws, tmp_path: Path, degrade_s: float, status: str
) -> None:
    site = spot(aws, tmp_path, ZONES[0])
    (before,) = app.clusters(site.application)
    assert before.region == "us-east-1"  # of the environment, as the resources have it
    assert before.state == "READY"
    aws.control(durations={"eks-nodegroup-degrade": degrade_s}, capacity_trace=[trace(ZONES[0], 0)])
    aws.advance(300)
    assert (group(aws)["status"], machines(aws)) == (status, [])
    (view,) = app.clusters(site.application)
    (lack,) = view.missing
    assert view.state == "NOT READY"
    assert "0 of 2 nodes run" in lack.reason
    assert "UnfulfillableCapacity" in lack.reason
    assert view.cost.known_usd < before.cost.known_usd / 10
    action = site.planned()["gpu-nodes/t"]
    assert action.step is PlanStep.CHANGE
    assert "0 of 2 nodes run, and it tries again by itself" in action.reason
    found = [each for each in app.examine(site.application, site.cluster, {}) if not each.ok]
    assert any("0 of 2 nodes run" in each.found for each in found)


def test_a_group_without_capacity_waits_if_nothing_else_can_be_had(aws: Aws, tmp_path: Path) -> None:
    site = spot(aws, tmp_path, ZONES[0])
    name = group(aws)["nodegroupArn"]
    aws.control(capacity_trace=[trace(ZONES[0], 0)])
    aws.advance(300)
    with pytest.raises(NoCapacityError, match="0 of 2 nodes run") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert group(aws)["nodegroupArn"] == name
    aws.control(capacity_trace=[trace(ZONES[0], 1)])
    aws.advance(GAP)
    assert machines(aws) == [ZONES[0]] * 2
    assert site.planned() == {}
    (view,) = app.clusters(site.application)
    assert view.state == "READY"


def test_up_moves_a_group_without_machines_to_a_zone_that_has_some(aws: Aws, tmp_path: Path) -> None:
    site = spot(aws, tmp_path, *ZONES)
    aws.control(capacity_trace=[trace(ZONES[0], 0)])
    aws.advance(300)
    site.up()
    assert machines(aws) == [ZONES[1]] * 2
    (view,) = app.clusters(site.application)
    assert view.state == "READY"
    site.down()
    assert aws.state() == []


def test_up_keeps_the_node_that_is_left_and_the_group_waits_for_the_other(aws: Aws, tmp_path: Path) -> None:
    site = spot(aws, tmp_path, *ZONES)
    aws.control(capacity_trace=[trace(ZONES[0], 1, counts=True)])
    aws.advance(300)
    assert machines(aws) == [ZONES[0]]
    assert "1 of 2 nodes run" in site.planned()["gpu-nodes/t"].reason
    with pytest.raises(NoCapacityError, match="waits for the others") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert (machines(aws), group(aws)["scalingConfig"]["desiredSize"]) == ([ZONES[0]], 2)
    aws.control(capacity_trace=[trace(ZONES[0], 2, counts=True)])
    aws.advance(GAP)
    assert machines(aws) == [ZONES[0]] * 2


def test_a_group_of_no_nodes_that_eks_calls_degraded_is_as_asked_for(aws: Aws, tmp_path: Path) -> None:
    site = spot(aws, tmp_path, ZONES[0])
    aws.control(durations={"eks-nodegroup-degrade": 0}, capacity_trace=[trace(ZONES[0], 0)])
    aws.advance(300)
    site.provider.halt(site.cluster)
    aws.advance(600)
    assert (group(aws)["status"], group(aws)["scalingConfig"]["desiredSize"]) == ("DEGRADED", 0)
    seen = next(each for key, each in site.found().items() if key.startswith("gpu-nodes/"))
    assert (seen.condition.value, seen.machines.running if seen.machines else None) == ("ready", 0)
    site.down()
