"""Claims about the engine where clouds are at their worst: sold out, lost answers, lagging lists, twins."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from cloudrec.engine.clock import Clock, InterruptedWait
from cloudrec.engine.graph import TAG_KEY, Condition, Graph, Observed
from cloudrec.engine.plan import Step
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError, NoCapacityError, SpecError, UsageError
from tests.unit.engine.support import (
    GRAPH,
    SETTLE_S,
    Bench,
    Crash,
    LostError,
    NoneLeftError,
    ThrottledError,
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


def test_the_first_candidate_that_can_be_had_serves_and_the_reasons_of_the_others_are_kept(
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
    assert bench.up(WITH_GPUS) == []  # the one that serves is kept, though the first may be had again
    bench.down(WITH_GPUS)
    assert bench.cloud.things == {}


def test_with_no_candidate_left_all_else_is_kept_and_the_next_up_tries_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.sold_out = {f"gpu/{name}": f"none in {name}" for name in ("spot-a", "spot-b", "paid-a")}
    with pytest.raises(NoCapacityError, match=r"(?s)none of 3 candidates.*gpu/spot-b: none in spot-b"):
        bench.up(WITH_GPUS)
    assert names(bench) == {item.name for item in GRAPH[:-1]}  # the cluster stays; no failed group does
    del bench.cloud.sold_out["gpu/spot-b"]
    bench.up(WITH_GPUS)
    assert "spot-b" in names(bench)


@pytest.mark.parametrize("moment", ["create", "created", "condition"])
def test_a_crash_while_candidates_are_tried_is_healed(tmp_path: Path, moment: str) -> None:
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


def test_another_choice_than_before_takes_the_old_one_away_once_the_new_is_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up(WITH_GPUS)
    other = resource("gpu/any", "cluster/k", candidates=(resource("gpu/big", "cluster/k", size=2),))
    changed = (*GRAPH[:-1], other, resource("tap/t", "gpu/any"))
    assert bench.up(changed) == [(Step.CREATE, "gpu/any"), (Step.DELETE, "gpu/spot-a")]
    assert names(bench) & {"spot-a", "big"} == {"big"}


@pytest.mark.parametrize("key", [item.key for item in GRAPH])
@pytest.mark.parametrize("had_its_effect", [True, False])
@pytest.mark.parametrize("lists_lag", [True, False])
def test_a_lost_answer_makes_no_second_one(
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
def test_what_was_made_just_before_a_crash_is_waited_for_where_lists_lag(tmp_path: Path, key: str) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults[f"created {key}"] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    identity = f"id-{key.partition('/')[2]}"
    bench.cloud.unlisted, bench.cloud.listed_after[identity] = {identity}, SETTLE_S
    bench.up()
    assert bench.cloud.calls.count(f"created {key}") == 1


def test_what_was_deleted_by_hand_is_made_again_without_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    del bench.cloud.things["id-gpu"]
    assert bench.up() == [(Step.CREATE, "nodes/gpu")]
    assert bench.slept == 0


def test_a_second_one_of_a_name_goes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    twin = Observed(
        kind="nodes",
        name="twin",
        identity="id-twin",
        condition=Condition.READY,
        tags={**GRAPH[-1].tags, TAG_KEY: "nodes/gpu"},
    )
    bench.cloud.things["id-twin"] = twin
    (change,) = bench.plan().changes
    assert (change.step, change.reason) == (Step.DELETE, "another one serves as nodes/gpu")
    bench.up()
    assert "id-twin" not in bench.cloud.things
    bench.cloud.things["id-twin"] = twin
    bench.down()
    assert bench.cloud.things == {}


def test_a_cluster_of_this_name_of_another_owner_is_refused_with_the_remedy(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up((resource("vpc/net", owner="ann"),))
    with pytest.raises(UsageError, match=r"of a cluster of this name of 'ann', not of 'bob'") as caught:
        bench.up((resource("vpc/net", owner="bob"),))
    assert caught.value.remedy is not None
    assert "--set cluster.owner=ann" in caught.value.remedy


def test_what_others_stand_on_or_holds_data_is_not_replaced(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    painted = (resource("vpc/net", colour="red"), *GRAPH[1:])
    with pytest.raises(SpecError, match=r"vpc/net: colour differs; .* subnet/a need it"):
        bench.up(painted)
    moved = tuple(resource("bucket/data", colour="red") if r.key == "bucket/data" else r for r in GRAPH)
    with pytest.raises(SpecError, match=r"bucket/data: .*it holds data"):
        bench.up(moved)
    assert bench.up() == []


def test_down_with_another_spec_removes_in_the_order_of_kinds(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up(WITH_GPUS)
    other = Bench(tmp_path / "another-home", cloud=bench.cloud)
    before = bench.cloud.calls.count("throttled")
    other.down((resource("vpc/other"),), kinds=KINDS)  # the cloud refuses a deletion out of order
    assert bench.cloud.things == {}
    assert bench.cloud.calls.count("throttled") == before


def test_what_a_controller_makes_while_its_cluster_goes_is_found_by_the_next_look(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    stray = resource("tap/stray")
    bench.cloud.born_at["delete cluster/k"] = stray
    bench.down()
    assert bench.cloud.things == {}


def test_a_throttled_read_is_made_again_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["find vpc/net"] = [ThrottledError()]
    bench.cloud.faults["condition id-net"] = [ThrottledError(), LostError()]
    bench.up()
    assert len(bench.cloud.things) == len(GRAPH)


def test_who_waits_is_told_at_once_that_the_command_ends() -> None:
    clock, begun = Clock(), threading.Event()

    def work(key: str) -> None:
        if key == "end":
            begun.wait(10)
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
def test_a_speed_that_is_none_is_refused(speed: str) -> None:
    with pytest.raises(UsageError, match="not a number above 0"):
        Clock.of({"CLOUDREC_SANDBOX_SPEED": speed})


def test_a_hurried_clock_leaves_our_own_machine_ten_seconds_of_every_limit() -> None:
    assert Clock().limit(3) == 3
    assert Clock(100).limit(5) == 1000
    assert Clock(100).limit(1500) == 1500


def test_a_candidate_that_stands_in_the_graph_itself_is_refused() -> None:
    with pytest.raises(CloudrecError, match="gpu/spot-a cannot be a candidate"):
        Graph.of([*GRAPH, CHOICE, resource("gpu/spot-a")])


def test_a_failure_that_only_its_operation_tells_is_told_by_the_process_that_goes_on(tmp_path: Path) -> None:
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


def test_what_was_under_way_is_taken_up_by_down_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.cloud.faults["condition id-net"] = [Crash()]
    with pytest.raises(Crash):
        bench.up()
    assert bench.cloud.resumed == []
    bench.down()
    assert "operation-on-id-net" in bench.cloud.resumed
    assert bench.cloud.things == {}


def test_a_journal_of_the_first_schema_is_read_and_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    known = bench.journal.known("c")
    with sqlite3.connect(tmp_path / "journal.sqlite") as file:
        file.execute("alter table entries drop column operation")
        file.execute("pragma user_version = 1")
    file.close()
    again = Bench(tmp_path, bench.cloud)
    assert again.journal.known("c") == known
    assert again.up() == []
    again.down()
    assert again.cloud.things == {}


def test_what_is_the_accounts_is_seen_to_and_never_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    service = resource("tap/service", is_shared=True)
    resources = (service, resource("vpc/net", "tap/service"))
    assert bench.up(resources) == [(Step.CREATE, "tap/service"), (Step.CREATE, "vpc/net")]
    bench.cloud.accounts_own.add("id-service")  # as a provider's search leaves it out
    assert bench.up(resources) == []
    assert [known.name for known in bench.journal.known("c")] == ["net"]
    bench.down(resources)
    assert names(bench) == {"service"}


def test_what_goes_with_something_that_is_being_deleted_is_made_again_by_the_same_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.up()
    bench.cloud.goes_with["id-net"] = {"id-a", "id-k"}  # deleted by hand, and not gone yet
    assert bench.up() == [(Step.REPLACE, "vpc/net")]
    assert names(bench) == {"net", "admin", "data", "a", "k", "gpu"}
    assert bench.up() == []
