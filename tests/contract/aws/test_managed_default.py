"""Clusters that may have spot nodes are managed, unless their user says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.cli.plans import plan_summary
from cloudrec.engine.plan import Plan
from cloudrec.errors import SpecError
from tests.contract.aws.support import Site, fresh
from tests.sandbox.aws.support import Aws

TYPE, OTHER = "p4d.24xlarge", "g6.48xlarge"


@pytest.fixture
def account(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An account whose clusters get add-ons, and so a guard."""
    fresh(aws)
    monkeypatch.delitem(aws.env, "CLOUDREC_CLUSTER_ADDONS", raising=False)
    return aws


def planned(aws: Aws, folder: Path, **cluster: Any) -> Plan:
    site = Site(aws, folder, access="auto", **cluster)
    return app.up(site.application, site.cluster, decide=lambda _plan: False)


def gpu_groups(plan: Plan) -> list[str]:
    return [action.key for action in plan.actions if action.key.startswith("gpu-nodes/")]


@pytest.mark.parametrize("capacity", ["spot", "spot-first"])
def test_spot_nodes_come_with_a_keeper(account: Aws, tmp_path: Path, capacity: str) -> None:
    plan = planned(account, tmp_path, capacity=capacity, instance_types=(TYPE,))
    assert len(gpu_groups(plan)) == (3 if capacity == "spot" else 6)
    assert "managed  a keeper creates a run's nodes and removes them; else --no-managed" in plan_summary(plan)
    assert plan.cost.known_usd < 1
    assert plan.most.known_usd > (5 if capacity == "spot" else 20)  # the price of the nodes is shown


@pytest.mark.parametrize(
    "cluster",
    [
        {"capacity": "spot", "managed": False},
        {"capacity": "on-demand"},
        {"capacity": "spot", "instance_types": (TYPE, OTHER)},  # a run's pods are made for one type
        {"capacity": "spot", "addons": "none"},
    ],
    ids=["no-managed", "on-demand", "types", "no-add-ons"],
)
def test_other_clusters_have_their_nodes_from_the_beginning(
    account: Aws, tmp_path: Path, cluster: dict[str, Any]
) -> None:
    plan = planned(account, tmp_path, **cluster)
    assert len(gpu_groups(plan)) == 1
    assert "managed" not in plan_summary(plan)
    assert plan.cost.known_usd > 1


def test_what_a_user_says_is_not_changed_silently(account: Aws, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="one instance type"):
        planned(account, tmp_path, capacity="spot", instance_types=(TYPE, OTHER), managed=True)


def test_an_existing_cluster_stays_as_it_is(account: Aws, tmp_path: Path) -> None:
    site = Site(account, tmp_path, access="auto", capacity="spot", instance_types=(TYPE,), managed=False)
    account.env["CLOUDREC_CLUSTER_ADDONS"] = "none"  # there is no cluster behind the stand-in
    site.up()
    del account.env["CLOUDREC_CLUSTER_ADDONS"]
    site.cluster = site.cluster.model_copy(update={"managed": None})
    assert site.planned() == {}
