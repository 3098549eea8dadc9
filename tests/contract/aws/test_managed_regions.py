"""The keeper of a cluster whose runs may move to another region: it takes, offers and ends a run's turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cloudrec.keeper.managed.keeper import LEAVE_S, LINGER_S, PARTIAL_S
from cloudrec.keeper.managed.leader import LASTS_S
from cloudrec.launchers.base.results_store import Place
from cloudrec.launchers.kubernetes.turns import ACCEPT_S, Turn, create_turn, newest_turn, open_turns
from tests.contract.aws.support_trace import Trace
from tests.contract.aws.test_managed import (
    ROUND_S,
    TYPE,
    begun,
    group,
    killed_round,
    on,
    record,
    rounds,
    submit,
)

__all__ = ["begun"]
SHARED = {"cloudrec/turns": "shared", "cloudrec/launch": "1"}
NONE = {f"{TYPE}/us-east-1{zone}/spot": 0 for zone in "abcdef"}


def turns_of(trace: Trace, run: str) -> Place:
    access = trace.application.provider("aws").access(trace.site.cluster)
    return open_turns(access.storage, run, trace.aws.env)


def newest(place: Place) -> Turn:
    turn = newest_turn(place)
    assert turn is not None
    return turn


def first_turn(trace: Trace) -> Turn:
    here = trace.site.cluster.title
    return Turn(number=1, launch=1, clusters=(here, "west"), cluster=here, at=trace.now().timestamp())


def job(trace: Trace, run: str) -> dict[str, Any]:
    found = trace.kube.get("Job", run, namespace=trace.namespace)
    assert found is not None
    return found


def is_waiting(trace: Trace, run: str) -> bool:
    found = job(trace, run)
    return bool(found["spec"].get("suspend")) and "cloudrec/queued" in found["metadata"]["annotations"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_without_capacity_is_offered_to_the_next_region_and_taken_back(
    begun: Callable[..., Trace],
) -> None:
    trace = begun()
    place, here = turns_of(trace, "one"), trace.site.cluster.title
    submit(trace, "one", SHARED)
    said = rounds(trace, lambda: record(trace).at > 0, "a round", most=1)
    assert trace.machines() == []  # it is not offered yet
    assert not any("requested" in line for line in said)
    create_turn(place, first_turn(trace))
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on the first candidate")
    assert (newest(place).number, newest(place).by) == (2, here)

    gone = {"instance_type": TYPE, "capacity": "spot", "data": [0], "gap_seconds": 10**7}
    trace.aws.control(capacity_trace=[{**gone, "zone": f"us-east-1{zone}"} for zone in "abcdef"])
    rounds(trace, lambda: newest(place).cluster == "west", "offered to the other region")
    offered = newest(place)
    assert (offered.number, offered.by, offered.is_taken) == (3, here, False)
    assert is_waiting(trace, "one")
    events = {event.text: event.at for event in record(trace).events if event.run == "one"}
    lost = next(at for text, at in events.items() if "takes nodes back" in text)
    # The nodes end two minutes after their notice; then each candidate is refused within a round.
    moved = next(at for text, at in events.items() if "it is offered to cluster west" in text)
    assert moved - lost <= LEAVE_S + 120 + 10 * ROUND_S
    taken = replace(offered, number=4, by="west")
    assert create_turn(place, taken)
    rounds(trace, lambda: not record(trace).runs, "no longer here")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")
    assert newest(place) == taken
    assert record(trace).turns == {"one": taken}
    assert "in cluster west" in trace.command("queue").stdout

    trace.aws.control(capacity_trace=[])
    assert create_turn(place, replace(taken, number=5, cluster=here))
    rounds(trace, lambda: len(on(trace, "one")) == 1, "back on nodes here")
    assert (newest(place).number, newest(place).cluster, newest(place).by) == (6, here, here)
    trace.kube.delete("Job", "one", namespace=trace.namespace)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_end_of_a_run_is_known_in_each_of_its_clusters(begun: Callable[..., Trace]) -> None:
    trace = begun()
    here = trace.site.cluster.title
    for name in ("one", "two"):
        submit(trace, name, SHARED)
    one, two = turns_of(trace, "one"), turns_of(trace, "two")
    create_turn(one, first_turn(trace))
    create_turn(two, replace(first_turn(trace), cluster="west", by="west"))
    trace.server.control(bookkeeping={"run_s": 60, "exit_code": 0})
    rounds(trace, lambda: is_waiting(trace, "two"), "suspended, since the other region has it", most=3)
    rounds(trace, lambda: newest(one).ended == "succeeded", "ended here")
    assert (newest(one).cluster, newest(one).by) == (here, here)
    before = newest(one).number
    create_turn(two, replace(newest(two), number=2, ended="failed"))
    rounds(trace, lambda: not is_waiting(trace, "two"), "ended there", most=3)
    assert job(trace, "two")["spec"]["suspend"]  # it is not resumed
    for _ in range(3):
        trace.advance(ROUND_S)
        trace.round()
    assert newest(one).number == before
    assert not record(trace).runs


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_keeper_that_is_killed_while_it_offers_a_run_offers_it_once(begun: Callable[..., Trace]) -> None:
    trace = begun()
    place = turns_of(trace, "one")
    trace.aws.control(capacity=NONE)
    submit(trace, "one", SHARED)
    create_turn(place, first_turn(trace))
    kills = 0
    for at in range(1, 10):
        for is_after in (False, True):
            kills += killed_round(trace, at, is_after=is_after)
            if newest(place).cluster == "west" and not newest(place).is_taken:
                create_turn(place, replace(newest(place), number=newest(place).number + 1, by="west"))
            trace.advance(LASTS_S + 1)  # until the dead process's lease ends, the others do nothing
    assert kills > 8
    assert newest(place).number == 4  # taken here once, offered once, taken there
    assert newest(place).is_taken
    assert is_waiting(trace, "one")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not record(trace).asked, "released")
    assert trace.machines() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_waits_behind_others_is_offered_to_the_next_region(begun: Callable[..., Trace]) -> None:
    trace = begun()
    submit(trace, "one")
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on nodes")
    place = turns_of(trace, "two")
    submit(trace, "two", SHARED)
    create_turn(place, first_turn(trace))
    rounds(trace, lambda: record(trace).queue == ("two",), "queued", most=3)
    trace.advance(ACCEPT_S / 2)
    trace.round()
    assert newest(place).cluster == trace.site.cluster.title  # it waits for a while
    trace.advance(ACCEPT_S / 2 + ROUND_S)
    rounds(trace, lambda: newest(place).cluster == "west", "offered", most=3)
    assert newest(place).reason == "other runs have the nodes"
    assert is_waiting(trace, "two")
    assert on(trace, "one") == {group("a")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_a_part_of_its_nodes_leaves_once_its_pods_have_ended(begun: Callable[..., Trace]) -> None:
    trace = begun()
    place = turns_of(trace, "one")
    trace.aws.control(capacity={**NONE, f"{TYPE}/us-east-1a/spot": 1})
    submit(trace, "one", SHARED)
    create_turn(place, first_turn(trace))
    rounds(trace, lambda: len(trace.machines()) == 1, "one of two nodes")
    trace.round()
    trace.advance(PARTIAL_S - 5 * ROUND_S)
    trace.round()
    assert newest(place).cluster == trace.site.cluster.title  # it waits for the other node
    rounds(trace, lambda: newest(place).cluster == "west", "offered")
    create_turn(place, replace(newest(place), number=newest(place).number + 1, by="west"))
    pods = trace.kube.list("Pod", namespace=trace.namespace, labels={"cloudrec/run": "one"})
    assert [pod for pod in pods if pod["status"].get("phase") == "Running"] == []
    assert is_waiting(trace, "one")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")
