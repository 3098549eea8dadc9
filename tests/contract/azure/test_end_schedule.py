"""Azure ends a cluster by itself, with no guard in it and no client."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app.records import known_clusters
from cloudrec.providers.azure.api import ids
from cloudrec.spec.models import ClusterSpec
from tests.contract.azure.support import Site, fresh
from tests.sandbox.azure.support import Azure, stand_in
from tests.tallies import Tally

FIVE_MINUTES = 300.0
EARLY = 7200.0  # the stand-in's clock takes some seconds for it
TTL = "1h"
UP = ("up", "azure", "--cluster", "t", "--nodes", "1", "--access", "private", "--yes")
LIMITS = (("--ttl", TTL), ("--budget", "30"))
# One real command that waits for a line on stdin before it starts, so that its pid can be printed.
_HELD = "import sys; sys.stdin.readline(); from cloudrec.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture(scope="module")
def own() -> Iterator[Azure]:
    """A stand-in for these tests, since they let weeks pass: Kubernetes' versions leave their support."""
    with stand_in() as azure:
        azure.ask("POST", "/save", {"name": "start"})
        yield azure


@pytest.fixture
def azure(own: Azure) -> Azure:
    begin(own)
    return own


@pytest.fixture
def limited(azure: Azure, tmp_path: Path) -> Site:
    """A cluster with an end, and no add-ons in it: no guard."""
    return Site(azure, tmp_path, ttl=TTL)


def begin(azure: Azure) -> None:
    """Reset the account and the clock."""
    fresh(azure)
    azure.ask("POST", "/restore", {"name": "start"})
    fresh(azure)


def gpu_nodes(azure: Azure) -> int:
    """The nodes of the pools of GPU nodes."""
    clusters = Site(azure, Path("unused")).sdk.containerservice
    return sum(
        row.count or 0
        for row in clusters.agent_pools.list("cloudrec-t", "cloudrec-t")
        if row.name.startswith("gpu")
    )


def virtual_end(azure: Azure, expires: str) -> float:
    """The stand-in's time at an end, which is a time of this machine's clock; no time may be skipped yet."""
    settings = azure.ask("GET", "")
    left = datetime.fromisoformat(expires).timestamp() - time.time()
    return float(settings["virtual_time"]) + left * float(settings["speed"])


def pass_until(azure: Azure, moment: float) -> None:
    """Let the stand-in's time pass until a moment."""
    left = moment - float(azure.ask("GET", "")["virtual_time"])
    assert left > 0
    azure.advance(left)


def end_of(site: Site) -> str:
    """The end of the cluster, from the journal."""
    (known,) = known_clusters(site.application, name="t")
    assert known.cluster.expires
    return known.cluster.expires


def workflow(azure: Azure) -> dict[str, Any]:
    """The workflow as Azure has it."""
    sdk = Site(azure, Path("unused")).sdk
    path = f"{ids.resource(sdk.subscription, 'cloudrec-t', 'Microsoft.Logic/workflows', 'cloudrec-t')}"
    found: dict[str, Any] = sdk.resources.resources.get_by_id(path, api_version="2019-05-01").as_dict()
    return found


def start_of(azure: Azure) -> str:
    (trigger,) = workflow(azure)["properties"]["definition"]["triggers"].values()
    return str(trigger["recurrence"]["startTime"])


def test_gpu_nodes_end_within_five_minutes_of_the_end_without_guard_and_client(
    azure: Azure, limited: Site
) -> None:
    limited.up()
    assert gpu_nodes(azure) == 1
    end = virtual_end(azure, end_of(limited))
    pass_until(azure, end - EARLY)
    assert gpu_nodes(azure) == 1
    pass_until(azure, end + FIVE_MINUTES)
    assert gpu_nodes(azure) == 0
    clusters = limited.sdk.containerservice
    assert [pool.name for pool in clusters.agent_pools.list("cloudrec-t", "cloudrec-t")] == ["system"]


def test_the_workflow_exists_before_the_first_gpu_node_and_names_each_candidate(
    azure: Azure, tmp_path: Path
) -> None:
    Site(azure, tmp_path, ttl=TTL, capacity="spot-first").up()
    made = [call["action"] for call in azure.calls()]
    pools = [number for number, action in enumerate(made) if action == "Put managedClusters/agentPools"]
    assert made.index("Put workflows") < pools[-1]
    actions = workflow(azure)["properties"]["definition"]["actions"]
    assert len(actions) > 1
    for name, action in actions.items():
        pool = name.removeprefix("delete_")
        assert f"/managedClusters/cloudrec-t/agentPools/{pool}?" in action["inputs"]["uri"]


def test_the_end_comes_although_aks_is_busy(azure: Azure, limited: Site) -> None:
    limited.up()
    end = virtual_end(azure, end_of(limited))
    pass_until(azure, end - EARLY)
    azure.control(durations={"aks-update": 3 * EARLY})
    cluster = limited.sdk.containerservice.managed_clusters
    row = cluster.get("cloudrec-t", "cloudrec-t")
    row.tags = {**row.tags, "other": "x"}
    cluster.begin_create_or_update("cloudrec-t", "cloudrec-t", row, polling=False)
    pass_until(azure, end + FIVE_MINUTES)
    assert gpu_nodes(azure) == 1  # refused: AKS runs one operation at a time
    azure.advance(3 * EARLY)
    assert gpu_nodes(azure) == 0


@pytest.mark.slow
def test_a_second_up_changes_nothing_and_a_new_ttl_moves_the_end(azure: Azure, limited: Site) -> None:
    limited.up()
    assert limited.planned() == {}
    before = start_of(azure)
    assert before == end_of(limited)
    limited.cluster = ClusterSpec.model_validate({**limited.cluster.model_dump(mode="json"), "ttl": "2h"})
    assert "end-schedule/t" in limited.planned()
    limited.up()
    moved = datetime.fromisoformat(start_of(azure)) - datetime.fromisoformat(before)
    assert moved.total_seconds() == pytest.approx(3600, abs=600)
    assert limited.planned() == {}


@pytest.mark.slow
def test_a_workflow_that_others_disabled_changed_or_deleted_is_repaired(azure: Azure, limited: Site) -> None:
    limited.up()
    there = workflow(azure)
    resources = limited.sdk.resources.resources
    for name, value in (
        ("state", "Disabled"),
        ("definition", {**there["properties"]["definition"], "actions": {}}),
    ):
        changed = {**there, "properties": {**there["properties"], name: value}}
        kept = {key: changed[key] for key in ("location", "tags", "identity", "properties")}
        resources.begin_create_or_update_by_id(there["id"], kept, api_version="2019-05-01", polling=False)
        assert list(limited.planned()) == ["end-schedule/t"]
        limited.up()
        assert limited.planned() == {}
    resources.begin_delete_by_id(there["id"], api_version="2019-05-01", polling=False)
    assert list(limited.planned()) == ["end-schedule/t"]
    limited.up()
    assert limited.planned() == {}


def test_down_removes_the_workflow_and_leaks_knows_it(azure: Azure, limited: Site, tmp_path: Path) -> None:
    limited.up()
    other = Site(azure, tmp_path / "other")
    found = {leak.found.kind for leak in app.leaks(other.application, "azure").leaks}
    assert "end-schedule" in found
    assert "unmanaged" not in found
    limited.down()
    assert azure.state() == []


@pytest.mark.slow
def test_the_call_for_a_pool_of_an_earlier_candidate_stays(azure: Azure, tmp_path: Path) -> None:
    Site(azure, tmp_path, ttl=TTL, capacity="spot-first").up()
    before = set(workflow(azure)["properties"]["definition"]["actions"])
    later = Site(azure, tmp_path, ttl="2h")
    later.up()
    assert set(workflow(azure)["properties"]["definition"]["actions"]) == before
    assert start_of(azure) == end_of(later)
    assert "end-schedule/t" not in later.planned()


def test_a_cluster_without_an_end_has_no_workflow(azure: Azure, tmp_path: Path) -> None:
    Site(azure, tmp_path).up()
    assert not [entry for entry in azure.state() if entry.startswith("logic:")]


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
def test_gpu_nodes_of_a_killed_up_end_on_each_sampled_call(
    azure: Azure, tmp_path: Path, limit: Sequence[str]
) -> None:
    calls = calls_from_the_pool_on(azure, tmp_path, limit)
    assert ended_after(azure, tmp_path, calls[:: max(1, len(calls) // 4)], limit) == []


@pytest.mark.soak
@pytest.mark.parametrize("limit", LIMITS)
def test_gpu_nodes_of_a_killed_up_end_on_every_call(
    azure: Azure, tmp_path: Path, limit: Sequence[str], tally: Tally
) -> None:
    calls = calls_from_the_pool_on(azure, tmp_path, limit)
    kills = [calls[number % len(calls)] for number in range(100)]
    left = ended_after(azure, tmp_path, kills, limit)
    tally(f"{len(kills) - len(left)} of {len(kills)} ended, killed at calls {calls[0]} to {calls[-1]}")
    assert left == []


def killed(azure: Azure, home: Path, limit: Sequence[str], *, call: int) -> int:
    """Run `up` in a process that is killed after this call; return its exit status."""
    environment = {
        **os.environ,
        **azure.env,
        "CLOUDREC_HOME": str(home),
        "CLOUDREC_CLUSTER_OWNER": "tester",
    }
    with subprocess.Popen(
        [sys.executable, "-c", _HELD, *UP, *limit],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            azure.control(kill={"pid": process.pid, "call": call, "when": "after"})
            _, errors = process.communicate("go\n", timeout=120)
        finally:
            process.kill()
            azure.control(kill=None)  # `up` may have made fewer calls
    assert process.returncode in {0, -9}, errors
    return process.returncode


def calls_from_the_pool_on(azure: Azure, folder: Path, limit: Sequence[str]) -> list[int]:
    """The numbers of the calls of `up` from the creation of the pool of GPU nodes to the last one."""
    assert killed(azure, folder / "whole", limit, call=100_000) == 0
    made = [call["action"] for call in azure.calls()]
    first = max(number for number, action in enumerate(made, 1) if action == "Put managedClusters/agentPools")
    return list(range(first, len(made) + 1))


def ended_after(azure: Azure, folder: Path, calls: Sequence[int], limit: Sequence[str]) -> list[int]:
    """Kill `up` at each of these calls, and let the end pass; return those after which GPU nodes are left."""
    left, without = [], 0
    for turn, number in enumerate(calls):
        begin(azure)
        site = Site(azure, folder / str(turn))
        killed(azure, site.home.root, limit, call=number)
        end = virtual_end(azure, end_of(site))
        azure.advance(1800)  # what was begun is completed
        without += not gpu_nodes(azure)  # calls of threads may come in another order
        pass_until(azure, end + FIVE_MINUTES)
        if gpu_nodes(azure):
            left.append(number)
    assert without <= len(calls) // 2
    return left
