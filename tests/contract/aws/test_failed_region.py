"""A run whose region has failed: its keeper and its pods are silent, and another region takes the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cloudrec.errors import StorageError
from cloudrec.keeper.managed.sharing import QUIET_S, SILENT_S
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec.launchers.base.results_store import Place, open_place
from cloudrec.launchers.kubernetes.turns import RENEW_S, create_turn
from cloudrec_contract.layout import run_uri
from tests.contract.aws.support_trace import Trace
from tests.contract.aws.test_managed import ROUND_S, begun, group, on, record, rounds, submit
from tests.contract.aws.test_managed_regions import (
    SHARED,
    first_turn,
    is_waiting,
    job,
    newest,
    turns_of,
)

__all__ = ["begun"]


def results_of(trace: Trace, run: str) -> Place:
    access = trace.application.provider("aws").access(trace.site.cluster)
    return open_place(run_uri(access.storage, run), trace.aws.env)


def later(trace: Trace, seconds: float) -> None:
    """Let time pass, and make a round."""
    trace.advance(seconds)
    trace.round()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_of_a_failed_region_continues_here_and_goes_back_suspended(begun: Callable[..., Trace]) -> None:
    trace = begun()
    place, here = turns_of(trace, "one"), trace.site.cluster.title
    results = results_of(trace, "one")
    results.write("pods/west-0/rank-0.log", b"step 70\n")
    submit(trace, "one", SHARED)
    there = replace(first_turn(trace), cluster="west", by="west", step=70, steps=100)
    create_turn(place, there)
    rounds(trace, lambda: is_waiting(trace, "one"), "suspended: the other region has it", most=3)
    later(trace, SILENT_S)
    assert record(trace).silent["one"].number == 1
    # The control plane there has failed; the nodes continue to train.
    for steps in range(3):
        results.write("pods/west-0/rank-0.log", b"step 70\n" * (2 + steps))
        later(trace, QUIET_S + ROUND_S)
        assert newest(place) == there
    later(trace, QUIET_S + ROUND_S)
    taken = newest(place)
    assert (taken.number, taken.cluster, taken.by, taken.step) == (2, here, here, 70)
    assert record(trace).silent == {}
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on nodes here")
    events = [event.text for event in record(trace).events if event.run == "one"]
    assert any("cluster west has not reported for" in text and "continues here" in text for text in events)
    assert "cluster west has not reported" in trace.command("status", "--events").stdout

    later(trace, RENEW_S)
    renewed = newest(place)
    assert (renewed.number, renewed.cluster, renewed.by) == (3, here, here)
    assert renewed.at - taken.at >= RENEW_S
    # This region fails in turn: without its API server, the keeper does not renew.
    trace.advance(RENEW_S)
    assert "the API server does not answer" in trace.round(around=Refusing)
    assert newest(place) == renewed
    create_turn(place, replace(renewed, number=4, cluster="west", by="west"))
    create_turn(place, replace(renewed, number=5, cluster="west", by="west", ended="succeeded"))
    assert not job(trace, "one")["spec"].get("suspend")
    rounds(trace, lambda: not on(trace, "one") and not record(trace).runs, "ended here too")
    rounds(trace, lambda: not is_waiting(trace, "one"), "out of the queue", most=3)
    assert job(trace, "one")["spec"]["suspend"]
    assert newest(place).number == 5


class Refusing:
    """A client whose API server answers nothing but the guard's orders."""

    def __init__(self, client: object) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        def refused(*words: object, **_: object) -> object:
            if (name, *words[:2]) == ("get", "ConfigMap", "cloudrec-guard"):
                return getattr(self._client, name)(*words, **_)
            raise KubeError("the API server does not answer")

        return refused


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_end_of_a_cluster_stops_its_run_in_all_regions(
    begun: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = begun(ttl="3h")
    place = turns_of(trace, "one")
    submit(trace, "one", SHARED)
    create_turn(place, first_turn(trace))
    submit(trace, "two", SHARED)
    away = turns_of(trace, "two")
    create_turn(away, replace(first_turn(trace), cluster="west", by="west"))
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on nodes")
    before = newest(place)
    trace.advance(3 * 3600.0)
    with monkeypatch.context() as patch:
        patch.setattr("cloudrec.keeper.managed.sharing.newest_turn", refuse)
        said = trace.round()  # the nodes end also without the storage
    assert "its turns cannot be used" in said
    assert newest(place) == before
    trace.advance(ROUND_S)
    trace.round()
    stopped = newest(place)
    assert (stopped.number, stopped.ended) == (before.number + 1, "stopped")
    later(trace, ROUND_S)
    assert newest(place) == stopped
    assert newest(away).number == 1  # the other region continues with what it has
    assert job(trace, "one")["spec"]["suspend"]
    trace.advance(300)
    assert trace.machines() == []


def refuse(_place: Place) -> None:
    raise StorageError("the bucket does not answer")
