"""The turns of a run of several clusters: one file each, of which the newest counts."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import DataError, StorageError
from cloudrec.keeper.managed.record import KeptRun, ManagedRecord
from cloudrec.keeper.managed.runs import ManagedRun
from cloudrec.keeper.managed.sharing import QUIET_S, SILENT_S, TurnKeeper
from cloudrec.kubernetes.wishes import QUEUED
from cloudrec.launchers import launcher
from cloudrec.launchers.base.record import note_place
from cloudrec.launchers.base.results_store import Place, open_place
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.context import spec_here
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.launchers.kubernetes.submit import suspended
from cloudrec.launchers.kubernetes.turns import (
    ACCEPT_S,
    RENEW_S,
    Turn,
    create_turn,
    end_turns,
    newest_turn,
    offer_first,
    open_turns,
)
from cloudrec.launchers.kubernetes.watch.losses import vanished

CLUSTERS = ("east", "west", "north")
FIRST = Turn(number=1, launch=1, clusters=CLUSTERS, cluster="east", at=100.0)


def managed_run(*, launch: int = 1, ended: str = "", is_suspended: bool = False) -> ManagedRun:
    torchrun = launcher("torchrun")
    assert isinstance(torchrun, KubeLauncher)
    return ManagedRun(
        name="first",
        engine=torchrun.engine,
        began=0.0,
        nodes=2,
        deadline_s=None,
        work_s=None,
        max_price=None,
        is_suspended=is_suspended,
        is_queued=False,
        launch=launch,
        is_shared=True,
        ended=ended,
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return open_turns(str(tmp_path), "first")


def keeper(cluster: str, place: Place) -> TurnKeeper:
    storage = place.uri.removesuffix("/turns/first")
    return TurnKeeper(cluster=cluster, storage=storage, open=open_place, report=lambda _line: None)


def test_the_newest_turn_counts_and_a_number_is_written_once(place: Place) -> None:
    assert newest_turn(place) is None
    assert create_turn(place, FIRST)
    later = replace(FIRST, number=12, by="east", reason="no capacity", step=7, steps=9)
    assert create_turn(place, later)
    assert newest_turn(place) == later
    assert not create_turn(place, replace(later, cluster="west"))
    assert newest_turn(place) == later


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        FIRST.to_json().replace('"east"', '"south"', 1).replace('"cluster": "east"', '"cluster": "nowhere"'),
        FIRST.to_json().replace('"number": 1', '"number": "1"'),
        FIRST.to_json().replace('"number": 1', '"number": -1'),
        FIRST.to_json().replace('"at": 100.0', '"at": "soon"'),
        FIRST.to_json().replace('"ended": ""', '"ended": "maybe"'),
        FIRST.to_json().replace('"step": null', '"step": 1.5'),
        FIRST.to_json().replace('"by": ""', '"by": "stranger"'),
        FIRST.to_json().replace('"launch": 1', '"launch": 1, "more": 2'),
        FIRST.to_json().replace('"number": 1', '"number": 2'),
    ],
)
def test_a_damaged_turn_is_an_error_and_no_turn(place: Place, text: str) -> None:
    assert text != FIRST.to_json()
    place.write("00000001.json", text.encode())
    with pytest.raises(DataError):
        newest_turn(place)


def test_other_files_are_no_turns(place: Place) -> None:
    assert create_turn(place, FIRST)
    for name in ("00000002.json.tmp", "2.json", "99999999.txt", "abcdefgh.json"):
        place.write(name, b"x")
    assert newest_turn(place) == FIRST


def test_the_launch_offers_the_run_to_its_first_cluster_once(tmp_path: Path) -> None:
    spec = RunSpec(name="first", cluster="east", storage=str(tmp_path), elsewhere=("west",))
    place = open_turns(str(tmp_path), "first")
    for _ in range(2):  # the second is a command that continues a killed one
        offer_first(spec, launch=1, at=5.0)
        found = newest_turn(place)
        assert found == Turn(number=1, launch=1, clusters=("east", "west"), cluster="east", at=5.0)
    offer_first(spec, launch=2, at=6.0)
    found = newest_turn(place)
    assert found is not None
    assert (found.number, found.launch, found.cluster, found.is_taken) == (2, 2, "east", False)


def test_a_keeper_takes_what_is_offered_to_its_cluster(place: Place) -> None:
    create_turn(place, FIRST)
    run, west, east = managed_run(), keeper("west", place), keeper("east", place)
    assert west.look(run, None, 110.0) == FIRST
    assert not west.has(run, FIRST)
    taken = east.look(run, None, 120.0)
    assert taken == replace(FIRST, number=2, by="east", at=120.0)
    assert east.has(run, taken)
    assert east.look(run, taken, 130.0) == taken  # once
    assert not west.has(run, west.look(run, None, 130.0))


def test_a_run_without_nodes_is_offered_to_the_next_cluster_with_its_steps(place: Place) -> None:
    create_turn(place, FIRST)
    run, west, east = managed_run(), keeper("west", place), keeper("east", place)
    taken = east.look(run, None, 120.0)
    assert taken is not None
    offered = east.offer(run, taken, KeptRun(step=90, steps=100, saved=80, reason="no capacity"), 500.0)
    assert offered is not None
    assert (offered.cluster, offered.by, offered.step, offered.steps) == ("west", "east", 80, 100)
    assert not east.has(run, offered)
    assert east.look(run, offered, 510.0) == offered
    received = west.look(run, None, 520.0)
    assert west.has(run, received)


def test_an_offer_that_no_keeper_takes_is_taken_by_the_clusters_after_it(place: Place) -> None:
    create_turn(place, replace(FIRST, cluster="west", by="east"))
    run, east, north = managed_run(), keeper("east", place), keeper("north", place)
    late = FIRST.at + ACCEPT_S + 1
    assert not east.has(run, east.look(run, None, late))  # north comes first
    assert not north.has(run, north.look(run, None, FIRST.at + ACCEPT_S - 1))
    assert north.has(run, north.look(run, None, late))


@pytest.mark.parametrize("run", [managed_run(launch=2), managed_run(is_suspended=True)])
def test_a_keeper_leaves_another_launch_and_a_stopped_run(place: Place, run: ManagedRun) -> None:
    create_turn(place, FIRST)
    east = keeper("east", place)
    assert east.look(run, None, 120.0) == FIRST
    assert not east.has(run, FIRST)
    assert not east.has(managed_run(launch=2), replace(FIRST, by="east"))


def test_the_end_of_a_run_is_written_for_the_other_clusters(place: Place) -> None:
    create_turn(place, replace(FIRST, by="east"))
    run, east = managed_run(ended="succeeded"), keeper("east", place)
    turn = east.look(run, None, 200.0)
    assert turn is not None
    closed = east.close(run, turn, 210.0)
    assert closed is not None
    assert (closed.ended, closed.cluster) == ("succeeded", "east")
    assert not keeper("west", place).has(managed_run(), closed)
    assert keeper("west", place).look(managed_run(), None, 10**9) == closed


def test_a_keeper_renews_the_turn_of_its_run_every_ten_minutes(place: Place) -> None:
    create_turn(place, replace(FIRST, by="east"))
    run, east = managed_run(), keeper("east", place)
    turn = east.look(run, None, 200.0)
    assert turn is not None
    kept = KeptRun(step=90, steps=100, saved=80)
    assert east.renew(run, turn, kept, FIRST.at + RENEW_S - 1) is None
    renewed = east.renew(run, turn, kept, FIRST.at + RENEW_S)
    assert renewed == replace(turn, number=2, at=FIRST.at + RENEW_S, step=80, steps=100)
    assert newest_turn(place) == renewed
    assert east.has(run, renewed)


def fail(place: Place, clusters: tuple[str, ...], run: ManagedRun, wrote: float = 0.0) -> dict[float, str]:
    """Let the keepers look for two hours after east has failed; return who took the run when.

    Args:
        place: the run's turns.
        clusters: those whose keepers work, in the order of their rounds.
        run: the run, as these clusters have it.
        wrote: until then the run's pods write their logs.
    """
    create_turn(place, replace(FIRST, by="east", step=70, steps=100))
    records = {name: ManagedRecord() for name in clusters}
    results, took = open_place(place.uri.replace("/turns/", "/runs/")), dict[float, str]()
    for now in range(int(FIRST.at) + 60, 7200, 60):
        if now <= wrote:
            results.write("pods/a/rank-0.log", b"step\n" * now)
        for name in clusters:
            record = replace(records[name], at=float(now), turns={}, silent={})
            shared = keeper(name, place).see(run, replace(records[name], at=float(now)))
            records[name] = shared.noted_in(record, "first")
            newest = newest_turn(place)
            if newest is not None and newest.cluster != "east" and newest.at == now:
                took[newest.at - FIRST.at] = newest.cluster
        if took:
            break
    return took


def test_a_run_whose_keeper_and_pods_are_silent_continues_in_the_next_cluster(place: Place) -> None:
    took = fail(place, ("north", "west"), managed_run())
    assert list(took.values()) == ["west"]
    assert SILENT_S + QUIET_S < next(iter(took)) <= SILENT_S + QUIET_S + 180
    taken = newest_turn(place)
    assert taken is not None
    assert (taken.number, taken.by, taken.step, taken.steps) == (2, "west", 70, 100)
    assert taken.reason == "cluster east has not reported for 32 minutes"
    # The keeper of the failed cluster works again.
    east = keeper("east", place)
    assert not east.has(managed_run(), east.look(managed_run(), replace(FIRST, by="east"), 9000.0))


def test_the_cluster_after_the_next_one_takes_the_run_if_that_one_has_failed_too(place: Place) -> None:
    took = fail(place, ("north",), managed_run())
    assert list(took.values()) == ["north"]
    assert next(iter(took)) > SILENT_S + QUIET_S + ACCEPT_S


def test_a_run_whose_pods_still_write_stays_where_it_is(place: Place) -> None:
    took = fail(place, ("west", "north"), managed_run(), wrote=5000.0)
    assert list(took.values()) == ["west"]
    assert next(iter(took)) + FIRST.at > 5000.0 + QUIET_S


@pytest.mark.parametrize("run", [managed_run(launch=2), managed_run(is_suspended=True)])
def test_a_stopped_run_and_another_launch_are_not_taken_from_a_failed_cluster(
    place: Place, run: ManagedRun
) -> None:
    assert fail(place, ("west", "north"), run) == {}


def test_a_run_that_was_stopped_while_a_cluster_did_not_answer_is_not_taken(place: Place) -> None:
    create_turn(place, replace(FIRST, by="east"))
    storage = place.uri.removesuffix("/turns/first")
    spec = RunSpec(name="first", cluster="east", storage=storage, elsewhere=CLUSTERS[1:])
    for launch in (2, 1, 1):  # a second `stop` changes nothing
        end_turns(spec, launch=launch, at=300.0)
    stopped = newest_turn(place)
    assert stopped == replace(FIRST, number=2, ended="stopped", at=300.0)
    for name in CLUSTERS:
        assert keeper(name, place).look(managed_run(), None, 10**9) == stopped
        assert not keeper(name, place).has(managed_run(), stopped)
    offer_first(spec, launch=2, at=400.0)  # `train --resume`
    assert keeper("east", place).has(
        managed_run(launch=2), keeper("east", place).look(managed_run(launch=2), None, 9.0)
    )


def test_the_end_of_a_cluster_stops_its_run_in_all_clusters(place: Place) -> None:
    taken = replace(FIRST, by="east")
    create_turn(place, taken)
    closed = keeper("east", place).close(managed_run(), taken, 50.0)
    assert closed is not None
    assert closed.ended == "stopped"
    assert fail_after(closed, place) == closed


def fail_after(turn: Turn, place: Place) -> Turn | None:
    """Return the newest turn after another keeper has looked, long after this one."""
    record = ManagedRecord(at=turn.at + 10**6)
    return keeper("west", place).see(managed_run(), record).turn


def test_a_storage_that_does_not_answer_changes_nothing() -> None:
    said: list[str] = []

    def refused(_run: str) -> Place:
        raise StorageError("the bucket does not answer")

    east = TurnKeeper(cluster="east", storage="s3://b", open=refused, report=said.append)
    taken = replace(FIRST, by="east")
    assert east.look(managed_run(), taken, 120.0) == taken
    assert east.look(managed_run(), None, 120.0) is None
    assert east.offer(managed_run(), taken, KeptRun(), 120.0) is None
    assert east.newest(managed_run()) is None
    assert east.renew(managed_run(), taken, KeptRun(), taken.at + RENEW_S) is None
    assert east.silence(managed_run(), replace(FIRST, by="west", cluster="west"), None, 10**6) is None
    assert len(said) == 6
    assert all("first" in line and "does not answer" in line for line in said)


def test_a_keeper_continues_when_the_turns_were_removed(place: Place) -> None:
    taken = replace(FIRST, by="east")
    assert keeper("east", place).look(managed_run(), taken, 120.0) == taken


@pytest.mark.parametrize("seed", range(6))
def test_at_most_one_cluster_has_a_run_whatever_the_order_of_the_keepers(tmp_path: Path, seed: int) -> None:
    place, random_ = open_turns(str(tmp_path), "first"), random.Random(seed)  # noqa: S311 - no secret
    create_turn(place, FIRST)
    keepers = {name: keeper(name, place) for name in CLUSTERS}
    known: dict[str, Turn | None] = dict.fromkeys(CLUSTERS)
    now, held = 100.0, set[str]()
    for _ in range(120):
        now += random_.choice([15.0, 15.0, 700.0])
        name = random_.choice(CLUSTERS)
        known[name] = keepers[name].look(managed_run(), known[name], now)
        newest = newest_turn(place)
        holders = [each for each in CLUSTERS if keepers[each].has(managed_run(), newest)]
        assert len(holders) <= 1
        held.update(holders)
        mine = known[name]
        if mine is not None and keepers[name].has(managed_run(), mine) and random_.random() < 0.5:
            known[name] = keepers[name].offer(managed_run(), mine, KeptRun(), now) or mine
    assert held == set(CLUSTERS)


def test_the_keepers_record_keeps_the_turns() -> None:
    record = ManagedRecord(at=1.0, turns={"first": replace(FIRST, step=3, steps=4)})
    assert ManagedRecord.of(record.to_json()) == record


def test_the_runs_cluster_is_that_of_its_turn_and_without_the_storage_the_last_one(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    spec = RunSpec(name="first", cluster="east", storage=str(storage), elsewhere=("west",))
    run = create_run(tmp_path / "runs", spec, [replace(spec, cluster="west", elsewhere=("east",))])
    run.ledger.append("submitted", launch=1)
    turns = open_turns(str(storage), "first")
    assert spec_here(run).cluster == "east"  # before the first turn
    create_turn(turns, replace(FIRST, clusters=("east", "west"), cluster="west", by="west"))
    assert spec_here(run).cluster == "west"
    note_place(run, run.ledger.read(), 1, "west")
    note_place(run, run.ledger.read(), 1, "west")
    assert [event.event for event in run.ledger.read()] == ["submitted", "moved"]
    turns.write("00000001.json", b"damaged")  # it cannot be read, as a storage that does not answer
    assert spec_here(run).cluster == "west"
    run.ledger.append("submitted", launch=2)
    assert spec_here(run).cluster == "east"  # each launch begins with the first one


@pytest.mark.parametrize("name", ["torchrun", "pytorchjob", "trainjob", "jobset", "rayjob"])
def test_a_run_is_submitted_suspended_to_the_clusters_that_do_not_have_it(name: str) -> None:
    found = launcher(name)
    assert isinstance(found, KubeLauncher)
    kind = found.engine.kind.rpartition("/")[2]
    job: dict[str, Any] = {"kind": kind, "metadata": {"name": "first"}, "spec": {"runPolicy": {"ttl": 1}}}
    before = deepcopy(job)
    other, changed = suspended([{"kind": "ConfigMap", "metadata": {}}, job], found.engine)
    assert other == {"kind": "ConfigMap", "metadata": {}}
    assert found.engine.is_suspended(changed)
    assert QUEUED in changed["metadata"]["annotations"]
    assert changed["spec"]["runPolicy"]["ttl"] == 1
    assert job == before


def test_pods_of_the_cluster_that_a_run_has_left_are_not_lost(tmp_path: Path) -> None:
    run = create_run(tmp_path / "runs", RunSpec(name="first"))
    pod = {"metadata": {"uid": "1", "name": "first-0"}, "spec": {"nodeName": "n"}, "status": {}}
    assert vanished(run, [pod], 1, cluster="east") == {}
    assert vanished(run, [], 1, cluster="west") == {}
    assert vanished(run, [pod], 1, cluster="west") == {}
    assert vanished(run, [], 1, cluster="west") == {"1": {"pod": "first-0", "node": "n"}}
