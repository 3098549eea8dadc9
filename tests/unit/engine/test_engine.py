"""The resource engine against a cloud in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cloudrec.engine.destroy import plan_removal
from cloudrec.engine.graph import Graph
from cloudrec.engine.plan import PlanStep
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError, ResourcesRemainError
from tests.unit.engine.support import GRAPH, SETTLE_S, Bench, Cloud, Crash, ThrottledError, resource


def test_up_creates_resources_after_their_needs_and_a_second_up_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    assert len(bench.cloud.things) == len(GRAPH)
    before = bench.cloud.changing_calls()
    assert bench.up() == []
    assert bench.cloud.changing_calls() == before


def test_down_deletes_everything_in_reverse_order_and_searches_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.down()  # the cloud refuses a deletion out of order
    assert bench.cloud.things == {}
    assert bench.journal.known("c") == []
    assert bench.slept >= SETTLE_S  # one empty listing does not prove absence


def test_keep_data_keeps_resources_with_data(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.down(keep_data=True)
    assert list(bench.cloud.things) == ["id-data"]


def test_the_plan_of_down_has_a_reason_for_each_resource(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    planned = plan_removal("c", bench.cloud.search("c"), keep_data=True)
    assert {action.step: action.reason for action in planned.actions} == {
        PlanStep.DELETE: "the cluster is removed",
        PlanStep.KEEP: "holds data, and --keep-data was given",
    }


@pytest.mark.parametrize("moment", ["create", "created", "condition"])
@pytest.mark.parametrize("key", [item.key for item in GRAPH])
def test_a_crash_at_any_call_of_up_is_recovered_by_up_and_by_down(
    tmp_path: Path, key: str, moment: str
) -> None:
    bench = Bench(tmp_path)
    call = f"condition id-{key.partition('/')[2]}" if moment == "condition" else f"{moment} {key}"
    bench.cloud.faults[call] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    bench.up()
    assert len(bench.cloud.things) == len(GRAPH)
    bench.down()
    assert bench.cloud.things == {}


@pytest.mark.parametrize("key", [item.key for item in GRAPH])
def test_a_crash_at_any_call_of_down_is_recovered_by_down(tmp_path: Path, key: str) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.faults[f"delete {key}"] = [Crash()]
    with pytest.raises(Crash):
        bench.down()
    bench.down()
    assert bench.cloud.things == {}


def test_down_finds_everything_without_a_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    other = Bench(tmp_path / "another-home", cloud=bench.cloud)
    other.down()
    assert bench.cloud.things == {}


def test_down_deletes_resources_that_only_the_journal_lists(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.unlisted = {"id-net", "id-gpu"}
    bench.down()
    assert bench.cloud.things == {}


def test_a_throttled_call_is_retried(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["create vpc/net"] = [ThrottledError(), ThrottledError()]
    bench.up()
    assert bench.cloud.calls.count("create vpc/net") == 3


def test_a_fatal_error_is_named_and_a_later_up_continues(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["create cluster/k"] = [ValueError("no such version")]
    with pytest.raises(CloudrecError, match="cluster/k: ValueError: no such version"):
        bench.up()
    assert "id-gpu" not in bench.cloud.things
    bench.up()
    assert "id-gpu" in bench.cloud.things


def test_a_comparison_that_asks_the_cloud_is_retried_and_its_error_is_explained(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.faults["difference cluster/k"] = [ThrottledError()]
    assert bench.up() == []
    bench.cloud.faults["difference cluster/k"] = [ValueError("may not read the policy")]
    with pytest.raises(CloudrecError, match="ValueError: may not read the policy"):
        bench.up()


def test_a_failed_deletion_does_not_stop_others_and_the_remaining_resources_are_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.faults["delete role/admin"] = [PermissionError("not yours")]
    with pytest.raises(
        ResourcesRemainError, match=r"role/admin +id-admin +\$1\.00/h: PermissionError: not yours"
    ):
        bench.down()
    assert list(bench.cloud.things) == ["id-admin"]


def test_drift_is_changed_in_place_or_replaced_and_the_plan_shows_the_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    grown = (*GRAPH[:-1], resource("nodes/gpu", "cluster/k", size=4))
    assert bench.up(grown) == [(PlanStep.CHANGE, "nodes/gpu")]
    assert bench.cloud.things["id-gpu"].properties == {"size": 4}
    painted = (*GRAPH[:-1], resource("nodes/gpu", "cluster/k", size=4, colour="red"))
    assert bench.up(painted) == [(PlanStep.REPLACE, "nodes/gpu")]
    assert bench.cloud.things["id-gpu"].properties == {"size": 4, "colour": "red"}


def test_resources_no_longer_specified_are_planned_for_deletion_and_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    assert bench.up(GRAPH[:-1]) == [(PlanStep.DELETE, "nodes/gpu")]
    assert "id-gpu" not in bench.cloud.things


def test_a_resource_of_another_cluster_with_the_same_name_is_never_changed(tmp_path: Path) -> None:
    theirs = Bench(tmp_path / "theirs")
    theirs.up()
    ours = Bench(tmp_path / "ours", cloud=theirs.cloud)
    mine = (resource("vpc/net", cluster="mine"),)
    with pytest.raises(
        CloudrecError, match=r"vpc/net \(id-net\) exists and is not this cluster's: it is of cluster 'c'"
    ):
        ours.up(mine)


def test_waiting_ends_at_the_deadline(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Cloud(pending_polls=1_000_000))
    with pytest.raises(CloudrecError, match="is pending, not ready, after 10000 s"):
        bench.up()


def test_after_a_suspend_past_the_deadline_the_state_is_checked_once_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Cloud(pending_polls=1))
    bench.cloud.stalls["condition id-net"] = lambda: bench.clock.sleep(100_000)
    bench.up()
    assert bench.slept >= 100_000


def test_a_graph_with_a_cycle_or_a_missing_need_is_refused() -> None:
    with pytest.raises(CloudrecError, match="in a circle"):
        Graph.of([resource("a/1", "a/2"), resource("a/2", "a/1")])
    with pytest.raises(CloudrecError, match="a/1 needs a/2, which is not in the graph"):
        Graph.of([resource("a/1", "a/2")])


def test_independent_nodes_are_processed_in_parallel() -> None:
    meet = threading.Barrier(2, timeout=180)  # passes only if both run at the same time
    assert walk({"a": set(), "b": set()}, lambda _key: void(meet.wait()), stop_at_failure=True) == {}


def void(_value: object) -> None:
    """Drop a value."""


def test_events_are_reported_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up((resource("vpc/net"),))
    assert [(event.key, event.event) for event in bench.journal.events("c")] == [
        ("vpc/net", "creating"),
        ("vpc/net", "ready"),
    ]
