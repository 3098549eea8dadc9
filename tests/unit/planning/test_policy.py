"""The policy for spot nodes: what it holds, requests and runs on, for any situation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudrec.planning.spot.history import CapacityHistory
from cloudrec.planning.spot.policy import Candidate, Decision, Held, Situation, WorkProgress, decide

SPOT = tuple(Candidate(name=name, hourly_usd=0.3) for name in ("a", "b", "c"))
PAID = Candidate(name="paid", hourly_usd=1.0, is_spot=False)
NOW = 100_000.0


def situation(
    *held: Held,
    runs_on: str | None = None,
    time_left: float | None = None,
    work_left: float = 3600.0,
    history: dict[str, CapacityHistory] | None = None,
    candidates: tuple[Candidate, ...] = (*SPOT, PAID),
) -> Situation:
    """A run of 24 h, begun 10,000 s ago, with restarts of 300 s."""
    return Situation(
        now=NOW,
        candidates=candidates,
        history=history or {},
        held=held,
        requested=frozenset(),
        runs_on=runs_on,
        progress=WorkProgress(
            begun=NOW - 10_000,
            work_s=86_400.0,
            left_s=work_left,
            restart_s=300.0,
            save_s=30.0,
            deadline=None if time_left is None else NOW + time_left,
        ),
    )


def nodes(name: str, *, ready: bool = True, ends_at: float | None = None) -> Held:
    return Held(name=name, since=NOW - 500, is_ready=ready, ends_at=ends_at)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    names = [each.name for each in (*SPOT, PAID)]
    held = tuple(
        Held(
            name=name,
            since=NOW - draw(st.floats(0, 1e5)),
            is_ready=draw(st.booleans()),
            ends_at=draw(st.none() | st.floats(NOW, NOW + 120)) if name != "paid" else None,
        )
        for name in draw(st.sets(st.sampled_from(names)))
    )
    ready = [each.name for each in held if each.is_ready]
    history = {
        name: CapacityHistory(
            is_up=draw(st.booleans()),
            at=NOW - draw(st.floats(0, 1e5)),
            ends=draw(st.integers(0, 50)),
            up_s=draw(st.floats(0, 1e6)),
            returns=draw(st.integers(0, 50)),
            down_s=draw(st.floats(0, 1e6)),
        )
        for name in draw(st.sets(st.sampled_from(names)))
    }
    return situation(
        *held,
        runs_on=draw(st.none() | st.sampled_from(ready)) if ready else None,
        time_left=draw(st.none() | st.floats(-1e4, 2e5)),
        work_left=draw(st.floats(0, 86_400)),
        history=history,
    )


def check(given_: Situation, decision: Decision) -> None:
    held = {each.name: each for each in given_.held}
    assert decision.keep <= held.keys()
    assert not decision.request & held.keys()
    assert decision.run_on is None or decision.run_on in decision.keep
    assert decision.run_on is None or held[decision.run_on].is_ready
    assert decision.reason


@given(situations())
def test_a_decision_holds_what_exists_and_runs_on_what_is_ready(given_: Situation) -> None:
    check(given_, decide(given_))


@given(situations())
def test_a_run_is_never_left_without_nodes_or_a_request(given_: Situation) -> None:
    decision = decide(given_)
    lasting = [each for each in given_.held if each.ends_at is None and each.name in decision.keep]
    ending = {each.name for each in given_.held if each.ends_at is not None}
    assert lasting or decision.request or ending >= {each.name for each in SPOT}


@given(situations())
def test_nodes_that_train_are_kept_until_others_are_ready(given_: Situation) -> None:
    decision = decide(given_)
    if given_.runs_on is not None and given_.runs_on not in {decision.run_on, "paid"}:
        assert decision.run_on is not None


@given(situations())
def test_on_demand_nodes_are_used_for_a_deadline_only(given_: Situation) -> None:
    decision = decide(given_)
    if given_.progress.deadline is None:
        assert "paid" not in decision.request


@given(situations())
def test_the_same_situation_gives_the_same_decision(given_: Situation) -> None:
    assert decide(given_) == decide(given_)


def test_a_notice_requests_the_replacement_while_the_old_nodes_train() -> None:
    decision = decide(situation(nodes("a", ends_at=NOW + 120), runs_on="a"))
    assert decision.run_on == "a"
    assert decision.request
    assert "a" not in decision.request


def test_a_candidate_with_a_good_history_is_requested_alone() -> None:
    history = {
        "a": CapacityHistory(is_up=False, at=NOW - 60, ends=9, up_s=9_000),
        "b": CapacityHistory(is_up=True, at=NOW - 600, ends=1, up_s=90_000),
    }
    assert decide(situation(history=history)).request == {"b"}


def test_all_candidates_are_requested_once_the_best_is_out_of_stock() -> None:
    history = {name: CapacityHistory(is_up=False, at=NOW - 30) for name in "abc"}
    assert decide(situation(history=history)).request == {"a", "b", "c"}


def test_a_candidate_that_was_out_of_stock_is_worth_a_request_again_later() -> None:
    gone = CapacityHistory(is_up=False, at=NOW)
    assert gone.chance(NOW) == 0
    assert gone.chance(NOW + 600) < gone.chance(NOW + 7200)


@pytest.mark.parametrize(("time_left", "work_left"), [(3600.0, 3600.0), (3600.0, 3100.0)])
def test_a_run_with_just_enough_time_moves_to_on_demand_nodes_and_stays(
    time_left: float, work_left: float
) -> None:
    on_spot = decide(situation(nodes("a"), runs_on="a", time_left=time_left, work_left=work_left))
    assert on_spot.request == {"paid"}
    assert on_spot.run_on == "a"
    both = situation(nodes("a"), nodes("paid"), runs_on="a", time_left=time_left, work_left=work_left)
    assert decide(both).run_on == "paid"
    assert decide(both).keep == {"paid"}


def test_a_run_behind_its_line_trains_on_demand_until_spot_nodes_are_ready() -> None:
    behind = situation(time_left=90_000.0, work_left=80_000.0)
    assert "paid" in decide(behind).request
    assert decide(behind).request > {"paid"}
    booting = situation(
        nodes("paid"), nodes("b", ready=False), runs_on="paid", time_left=90_000.0, work_left=80_000.0
    )
    assert decide(booting).run_on == "paid"
    assert decide(booting).keep == {"paid", "b"}
    ready = situation(nodes("paid"), nodes("b"), runs_on="paid", time_left=90_000.0, work_left=80_000.0)
    assert decide(ready).run_on == "b"
    assert decide(ready).keep == {"b"}


def test_a_run_ahead_of_its_line_waits_for_spot_nodes() -> None:
    ahead = situation(time_left=90_000.0, work_left=40_000.0)
    assert "paid" not in decide(ahead).request


def test_a_run_without_an_on_demand_candidate_keeps_its_requests_at_its_deadline() -> None:
    late = situation(time_left=10.0, work_left=3600.0, candidates=SPOT)
    assert decide(late).request == {"a", "b", "c"}
