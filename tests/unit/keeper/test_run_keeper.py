"""What the keeper requests and releases while pools fail, in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cloudrec.keeper.managed.observations import SLOW_S
from tests.unit.keeper.support_pools import BEGAN, GROWS_S, ROUND_S, FakeCluster, Pool

HOUR = 3600.0


@pytest.mark.parametrize("kind", ["aks", "aks-requested", "eks", "gke"])
def test_a_run_gets_the_zone_that_has_nodes_within_a_quarter_of_an_hour(kind: str) -> None:
    cluster = FakeCluster(kind, {"a": Pool(stock=0), "b": Pool(stock=2)})
    cluster.submit("r")
    record = cluster.rounds(HOUR / 4)
    assert record.runs["r"].reason == "b has the nodes"
    # GKE reports no problem, so that a refusal is known by the time alone.
    assert cluster.grown("b")[0] <= (SLOW_S if kind == "gke" else GROWS_S) + 2 * ROUND_S


@pytest.mark.parametrize("kind", ["aks", "aks-requested", "eks", "gke"])
def test_capacity_that_comes_back_hours_later_is_used(kind: str) -> None:
    cluster = FakeCluster(kind, {"a": Pool(stock=0), "b": Pool(stock=0)})
    cluster.submit("r")
    record = cluster.rounds(2 * HOUR)
    assert record.runs["r"].reason == "no candidate has spot capacity"
    requests = [event.text for event in record.events if event.text == "a: 2 nodes are requested"]
    assert len(requests) <= 3  # it was requested again for two hours
    cluster.pools["b"].stock = 2
    record = cluster.rounds(HOUR / 2)
    assert record.runs["r"].reason == "b has the nodes"


@pytest.mark.parametrize("kind", ["aks", "aks-requested", "eks", "gke"])
def test_a_part_of_the_nodes_is_given_back_although_the_others_are_requested_again_and_again(
    kind: str,
) -> None:
    cluster = FakeCluster(kind, {"a": Pool(stock=1)})
    cluster.submit("r")
    cluster.rounds(HOUR)
    given_back = [at for at, _, nodes in cluster.resizes if nodes == 0]
    assert given_back
    assert 900 < given_back[0] < 1500


def test_a_pool_that_another_process_made_smaller_is_requested_again_where_its_size_is_not_shown() -> None:
    cluster = FakeCluster("gke", {"a": Pool(stock=2)})
    cluster.submit("r")
    cluster.rounds(HOUR / 4)
    cluster.pools["a"] = Pool(stock=2)  # by hand
    record = cluster.rounds(HOUR / 2)
    assert record.runs["r"].reason == "a has the nodes"
    assert len(cluster.grown("a")) == 2


@pytest.mark.parametrize("wrong", ["joins", "has_gpus"])
def test_machines_that_do_not_become_ready_nodes_are_given_back_and_tried_more_and_more_rarely(
    wrong: str,
) -> None:
    cluster = FakeCluster("eks", {"a": Pool(stock=2)})
    setattr(cluster.pools["a"], wrong, False)
    cluster.submit("r")
    record = cluster.rounds(12 * HOUR)
    tries = cluster.grown("a")
    pauses = [later - at for at, later in pairwise(tries)]
    assert len(tries) == 6
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * HOUR
    assert "no ready nodes after 15 minutes" in " ".join(event.text for event in record.events)
    assert record.runs["r"].reason.startswith("the nodes of no pool became ready")
    assert cluster.pools["a"].machines == 0


@pytest.mark.parametrize("wrong", ["joins", "has_gpus"])
def test_a_run_takes_another_pool_if_the_machines_of_the_first_do_not_become_ready(wrong: str) -> None:
    cluster = FakeCluster("eks", {"a": Pool(stock=2), "b": Pool(stock=2)})
    setattr(cluster.pools["a"], wrong, False)
    cluster.submit("r")
    record = cluster.rounds(HOUR)
    assert record.runs["r"].reason == "b has the nodes"
    assert cluster.pools["a"].machines == 0


def test_a_pool_whose_nodes_became_ready_begins_with_the_shortest_hold_off_again() -> None:
    cluster = FakeCluster("eks", {"a": Pool(stock=2, has_gpus=False)})
    cluster.submit("r")
    assert cluster.rounds(HOUR / 2).held_off["a"].length_s == 900
    cluster.pools["a"].has_gpus = True
    assert cluster.rounds(HOUR).held_off == {}


def test_a_pool_that_aks_changes_for_long_is_not_held_off() -> None:
    cluster = FakeCluster("aks", {"a": Pool(stock=0)}, grows_s=2400.0)
    cluster.submit("r")
    record = cluster.rounds(3 * HOUR)
    assert record.held_off == {}
    assert len(cluster.grown("a")) >= 4


def test_a_stopped_run_keeps_its_nodes_until_its_pods_have_ended() -> None:
    cluster = FakeCluster("eks", {"a": Pool(stock=2), "b": Pool(stock=2), "c": Pool(stock=2)})
    for name, pool in (("one", "a"), ("two", "b")):
        cluster.submit(name)
        record = cluster.rounds(HOUR / 4)
        assert record.owner[pool] == name
        cluster.start_pods(name, pool)
    cluster.rounds(120)
    cluster.jobs["one"]["spec"]["suspend"] = True
    for pod in cluster.pods["one"]:
        pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    cluster.resizes.clear()
    cluster.rounds(100)
    assert cluster.resizes == []  # its pods write a checkpoint
    cluster.pods["one"] = []
    cluster.rounds(60)
    assert [(name, nodes) for _, name, nodes in cluster.resizes] == [("a", 0)]


def test_after_the_end_of_the_cluster_no_run_has_nodes_and_they_are_requested_again() -> None:
    cluster = FakeCluster("gke", {"a": Pool(stock=2)})
    cluster.submit("r")
    assert "a" in cluster.rounds(HOUR / 4).complete
    cluster.pools["a"] = Pool(stock=2)
    ended = cluster.record.ended(cluster.now)
    assert (ended.runs, ended.asked, ended.complete, ended.owner) == ({}, {}, {}, {})
    assert ended.history == cluster.record.history
    assert ended.ended(cluster.now + 60) is ended
    cluster.record = ended
    cluster.now += HOUR
    record = cluster.rounds(300)
    assert record.runs["r"].reason == "a has the nodes"
    assert cluster.grown("a")[-1] == cluster.now - 300 - BEGAN
