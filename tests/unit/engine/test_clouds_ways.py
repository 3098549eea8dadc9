"""The engine under failures of clouds: missing capacity, lost responses, late lists and duplicates."""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.engine.clock import Clock, InterruptedWait
from cloudrec.engine.graph import TAG_KEY, Condition, Graph, Observed
from cloudrec.engine.plan import PlanStep
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError, NoCapacityError, ResourcesRemainError, SpecError, UsageError
from tests.unit.engine.support import (
    GRAPH,
    SETTLE_S,
    Bench,
    Crash,
    LostError,
    NoneLeftError,
    ThrottledError,
    make_journal_old,
    resource,
)

CHOICE = resource(
    "gpu/any",
    "cluster/k",
    candidates=tuple(resource(f"gpu/{name}", "cluster/k", size=2) for name in ("spot-a", "spot-b", "paid-a")),
)
WITH_GPUS = (*GRAPH[:-1], CHOICE, resource("tap/t", "gpu/any"))
KINDS = {
    "vpc": set[str](),
    "role": set[str](),
    "bucket": set[str](),
    "subnet": {"vpc"},
    "cluster": {"subnet", "role"},
    "nodes": {"cluster"},
    "gpu": {"cluster"},
    "tap": {"gpu"},
}


def names(bench: Bench) -> set[str]:
    return {thing.name for thing in bench.cloud.things.values()}


def test_the_first_available_candidate_is_used_and_the_failures_of_others_are_kept(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["create gpu/spot-a"] = [NoneLeftError("no spot in a")]
    bench.cloud.sold_out["gpu/spot-b"] = "no spot in b"  # after the call has succeeded
    bench.up(WITH_GPUS)
    assert names(bench) & {"spot-a", "spot-b", "paid-a"} == {"paid-a"}
    assert "t" in names(bench)  # what needs the choice has it
    told = {event.key: event.detail for event in bench.journal.events("c") if event.event == "unavailable"}
    assert told == {"gpu/spot-a": "NoneLeftError: no spot in a", "gpu/spot-b": "no spot in b"}
    assert (
        bench.up(WITH_GPUS) == []
    )  # the current choice is kept, although the first candidate is available again
    bench.down(WITH_GPUS)
    assert bench.cloud.things == {}


def test_without_an_available_candidate_other_resources_are_kept_for_the_next_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.sold_out = {f"gpu/{name}": f"none in {name}" for name in ("spot-a", "spot-b", "paid-a")}
    with pytest.raises(NoCapacityError, match=r"(?s)none of 3 candidates.*gpu/spot-b: none in spot-b"):
        bench.up(WITH_GPUS)
    assert names(bench) == {
        item.name for item in GRAPH[:-1]
    }  # the cluster is kept; failed node groups are not
    del bench.cloud.sold_out["gpu/spot-b"]
    bench.up(WITH_GPUS)
    assert "spot-b" in names(bench)


@pytest.mark.parametrize("moment", ["create", "created", "condition"])
def test_a_crash_while_candidates_are_tried_is_recovered(tmp_path: Path, moment: str) -> None:
    bench = Bench(tmp_path)
    bench.cloud.sold_out["gpu/spot-a"] = "none"
    call = "condition id-spot-b" if moment == "condition" else f"{moment} gpu/spot-b"
    bench.cloud.faults[call] = [Crash()]
    with pytest.raises(Crash):
        bench.up(WITH_GPUS)
    bench.up(WITH_GPUS)
    assert names(bench) & {"spot-a", "spot-b", "paid-a"} == {"spot-b"}
    bench.down(WITH_GPUS)
    assert bench.cloud.things == {}


def test_a_new_choice_replaces_the_old_one_after_it_is_created(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up(WITH_GPUS)
    other = resource("gpu/any", "cluster/k", candidates=(resource("gpu/big", "cluster/k", size=2),))
    changed = (*GRAPH[:-1], other, resource("tap/t", "gpu/any"))
    assert bench.up(changed) == [(PlanStep.CREATE, "gpu/any"), (PlanStep.DELETE, "gpu/spot-a")]
    assert names(bench) & {"spot-a", "big"} == {"big"}


@pytest.mark.parametrize("key", [item.key for item in GRAPH])
@pytest.mark.parametrize("had_its_effect", [True, False])
@pytest.mark.parametrize("lists_lag", [True, False])
def test_a_lost_response_creates_no_duplicate(
    tmp_path: Path, key: str, *, had_its_effect: bool, lists_lag: bool
) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults[f"{'created' if had_its_effect else 'create'} {key}"] = [LostError()]
    if lists_lag:
        identity = f"id-{key.partition('/')[2]}"
        bench.cloud.unlisted = {identity}
        bench.cloud.listed_after[identity] = SETTLE_S
    bench.up()
    assert bench.cloud.calls.count(f"created {key}") == 1
    assert bench.up() == []


@pytest.mark.parametrize("key", [item.key for item in GRAPH])
def test_a_resource_created_before_a_crash_is_awaited_if_lists_are_late(tmp_path: Path, key: str) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults[f"created {key}"] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    identity = f"id-{key.partition('/')[2]}"
    bench.cloud.unlisted, bench.cloud.listed_after[identity] = {identity}, SETTLE_S
    bench.up()
    assert bench.cloud.calls.count(f"created {key}") == 1


def test_a_manually_deleted_resource_is_recreated_without_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    del bench.cloud.things["id-gpu"]
    assert bench.up() == [(PlanStep.CREATE, "nodes/gpu")]
    assert bench.slept == 0


def test_a_duplicate_is_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    twin = Observed(
        kind="nodes",
        name="twin",
        identity="id-twin",
        condition=Condition.READY,
        tags={**GRAPH[-1].tags, TAG_KEY: "nodes/gpu"},
        hourly_usd=0.0,
    )
    bench.cloud.things["id-twin"] = twin
    (change,) = bench.plan().changes
    assert (change.step, change.reason) == (PlanStep.DELETE, "another one serves as nodes/gpu")
    bench.up()
    assert "id-twin" not in bench.cloud.things
    bench.cloud.things["id-twin"] = twin
    bench.down()
    assert bench.cloud.things == {}


def test_a_cluster_name_of_another_owner_is_refused_with_the_remedy(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up((resource("vpc/net", owner="ann"),))
    with pytest.raises(UsageError, match=r"of a cluster of this name of 'ann', not of 'bob'") as caught:
        bench.up((resource("vpc/net", owner="bob"),))
    assert caught.value.remedy is not None
    assert "--set cluster.owner=ann" in caught.value.remedy


def test_resources_with_dependents_or_data_are_not_replaced(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    painted = (resource("vpc/net", colour="red"), *GRAPH[1:])
    with pytest.raises(SpecError, match=r"vpc/net: colour differs; .* subnet/a need it"):
        bench.up(painted)
    moved = tuple(resource("bucket/data", colour="red") if r.key == "bucket/data" else r for r in GRAPH)
    with pytest.raises(SpecError, match=r"bucket/data: .*it holds data"):
        bench.up(moved)
    assert bench.up() == []


def test_down_with_another_spec_deletes_in_the_order_of_kinds(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up(WITH_GPUS)
    other = Bench(tmp_path / "another-home", cloud=bench.cloud)
    before = bench.cloud.calls.count("throttled")
    other.down((resource("vpc/other"),), kinds=KINDS)  # the cloud refuses deletions out of order
    assert bench.cloud.things == {}
    assert bench.cloud.calls.count("throttled") == before


def test_resources_created_during_the_deletion_of_a_cluster_are_found_by_the_next_search(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.up()
    stray = resource("tap/stray")
    bench.cloud.born_at["delete cluster/k"] = stray
    bench.down()
    assert bench.cloud.things == {}


def test_a_throttled_read_is_retried(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["find vpc/net"] = [ThrottledError()]
    bench.cloud.faults["condition id-net"] = [ThrottledError(), LostError()]
    bench.up()
    assert len(bench.cloud.things) == len(GRAPH)


def test_a_wait_ends_at_once_when_the_command_ends() -> None:
    clock, begun = Clock(), threading.Event()

    def work(key: str) -> None:
        if key == "end":
            begun.wait(300)
            raise Crash
        begun.set()
        clock.sleep(1000)

    began = time.monotonic()
    with pytest.raises(Crash):
        walk({"wait": set(), "end": set()}, work, stop_at_failure=True, clock=clock)
    assert time.monotonic() - began < 100
    with pytest.raises(InterruptedWait):
        clock.sleep(1000)


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "inf", "nan"])
def test_an_invalid_speed_is_refused(speed: str) -> None:
    with pytest.raises(UsageError, match="not a number above 0"):
        Clock.of({"CLOUDREC_SANDBOX_SPEED": speed})


def test_an_accelerated_clock_keeps_ten_real_seconds_of_every_limit() -> None:
    assert Clock().limit(3) == 3
    assert Clock(100).limit(5) == 1000
    assert Clock(100).limit(1500) == 1500


def test_a_candidate_that_is_also_a_node_of_the_graph_is_refused() -> None:
    with pytest.raises(CloudrecError, match="gpu/spot-a cannot be a candidate"):
        Graph.of([*GRAPH, CHOICE, resource("gpu/spot-a")])


def test_a_failure_known_only_to_its_operation_is_reported_by_the_next_process(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.cloud.by_operation = True
    bench.cloud.pending_polls = 3
    bench.cloud.faults["condition id-spot-a"] = [Crash()]
    with pytest.raises(Crash):
        bench.up(WITH_GPUS)
    bench.cloud.sold_out["gpu/spot-a"] = "none left"
    assert "operation-on-id-spot-a" in {begun.operation for begun in bench.journal.operations("c")}
    bench.up(WITH_GPUS)
    assert names(bench) & {"spot-a", "spot-b"} == {"spot-b"}
    assert bench.journal.operations("c") == []


def test_an_operation_that_ended_after_its_process_is_removed_from_the_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["condition id-net"] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    assert "id-net" in {begun.identity for begun in bench.journal.operations("c")}
    bench.up()
    assert bench.journal.operations("c") == []


def test_down_resumes_operations_in_progress(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["condition id-net"] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    assert bench.cloud.resumed == []
    bench.down()
    assert "operation-on-id-net" in bench.cloud.resumed
    assert bench.cloud.things == {}


def test_a_journal_of_the_first_schema_is_read_and_migrated(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    known = bench.journal.known("c")
    make_journal_old(tmp_path / "journal.sqlite", 1)
    again = Bench(tmp_path, bench.cloud)
    assert again.journal.known("c") == known
    assert again.up() == []
    again.down()
    assert again.cloud.things == {}


def test_a_price_of_0_in_a_journal_of_the_second_schema_is_read_as_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    with sqlite3.connect(tmp_path / "journal.sqlite") as file:
        file.execute("update entries set hourly_usd = 0 where kind = 'vpc'")
    file.close()
    make_journal_old(tmp_path / "journal.sqlite", 2)
    again = Bench(tmp_path, bench.cloud)
    prices = {entry.kind: entry.hourly_usd for entry in again.journal.known("c")}
    assert prices["vpc"] is None  # that schema stored free and unknown prices alike
    assert {usd for kind, usd in prices.items() if kind != "vpc"} == {1.0}
    assert again.up() == []


def test_the_journal_stores_an_unknown_price(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up((replace(resource("vpc/net"), hourly_usd=None),))
    assert [entry.hourly_usd for entry in bench.journal.known("c")] == [None]


def test_remaining_resources_are_named_including_those_without_a_price(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    resources = (resource("vpc/net"), replace(resource("nodes/a", "vpc/net"), hourly_usd=None))
    bench.up(resources)
    bench.cloud.faults["delete nodes/a"] = [PermissionError("not yours")]
    with pytest.raises(
        ResourcesRemainError, match=r"2 resources remain \(\$1.00/h \+ unknown: nodes/a\)"
    ) as caught:
        bench.down(resources)
    assert "nodes/a  id-a  price unknown: " in caught.value.message


def test_shared_resources_of_the_account_are_created_and_never_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    service = resource("tap/service", is_shared=True)
    resources = (service, resource("vpc/net", "tap/service"))
    assert bench.up(resources) == [(PlanStep.CREATE, "tap/service"), (PlanStep.CREATE, "vpc/net")]
    bench.cloud.accounts_own.add("id-service")  # a provider's search omits it
    assert bench.up(resources) == []
    assert [known.name for known in bench.journal.known("c")] == ["net"]
    bench.down(resources)
    assert names(bench) == {"service"}


def test_a_resource_deleted_together_with_another_is_recreated_by_the_same_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.goes_with["id-net"] = {"id-a", "id-k"}  # deleted manually, and not gone yet
    assert bench.up() == [(PlanStep.REPLACE, "vpc/net")]
    assert names(bench) == {"net", "admin", "data", "a", "k", "gpu"}
    assert bench.up() == []
