"""The simulator of runs on spot nodes, beside arithmetic by hand and an independent simulation."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import interval as independent
from cloudrec.planning.spot.compare import Scenario, compare, play
from cloudrec.planning.spot.policy import Candidate
from cloudrec.planning.spot.references import oracle, stay, switch
from cloudrec.planning.spot.simulate import Play, Rules, SpotOutcome
from cloudrec.planning.spot.traces import Trace
from cloudrec.planning.spot.training import SaveTimes, Training, constant
from cloudrec_contract.interval import SaveCosts

FREE = SaveTimes(stall_s=0.0, commit_s=0.0)
HOUR = 3600.0


def trace(name: str, *lengths: int, gap_s: float = 600.0) -> Trace:
    """Times with and without capacity by turns, in gaps, beginning with capacity."""
    data = [1 - number % 2 for number, length in enumerate(lengths) for _ in range(length)]
    return Trace(name, gap_s, tuple(data))


def drawn(name: str, seed: int, *, share: float = 0.5, up_s: float = 6_000.0, days: int = 6) -> Trace:
    """A trace with heavy-tailed up-times."""
    chance, data = random.Random(f"{name}{seed}"), list[int]()  # noqa: S311 - made-up capacity
    is_up = chance.random() < share
    while len(data) < days * 144:
        mean = up_s if is_up else up_s * (1 - share) / share
        length = mean / math.gamma(1 + 1 / 0.7) * chance.weibullvariate(1, 0.7)
        data += [int(is_up)] * max(round(length / 600), 1)
        is_up = not is_up
    return Trace(name, 600.0, tuple(data[: days * 144]))


def played(*traces: Trace, hours: float, rules: Rules | None = None, saver: SaveTimes = FREE) -> SpotOutcome:
    return Play(
        candidates=[Candidate(name=each.name, hourly_usd=0.5) for each in traces],
        traces={each.name: each for each in traces},
        training=Training(saver=saver, intervals=constant(60.0)),
        rules=rules or Rules(answer_s=0.001),
        start_s=0.0,
        limit_s=hours * HOUR,
    ).run()


def test_nodes_that_never_end_lose_one_restart() -> None:
    outcome = played(trace("a", 100), hours=10)
    assert outcome.useful_s == pytest.approx(10 * HOUR - 300, abs=1)
    assert outcome.usd == pytest.approx(5.0, abs=0.01)
    assert outcome.moves == 1


def test_an_end_without_a_notice_costs_what_was_not_committed_and_a_restart() -> None:
    rules = Rules(announced=0.0, answer_s=0.001)
    outcome = played(trace("a", 30, 100), trace("b", 130), hours=10, rules=rules)
    # 18,000 s until the end on `a`, of which less than one interval of 60 s is lost; then the rest on `b`.
    assert 10 * HOUR - 2 * 300 - 60 - 1 <= outcome.useful_s <= 10 * HOUR - 2 * 300 + 1
    assert outcome.moves == 2


def test_a_replacement_that_boots_during_the_notice_hides_that_part_of_the_restart() -> None:
    rules = Rules(announced=1.0, answer_s=0.001, boot_share=0.4)  # nodes boot in 120 s, as the notice lasts
    outcome = played(trace("a", 30, 100), trace("b", 130), hours=10, rules=rules)
    lost_s = 10 * HOUR - outcome.useful_s
    assert lost_s == pytest.approx(300 + rules.load_s, abs=15)


def test_nodes_cost_money_from_their_start_to_their_end() -> None:
    outcome = played(trace("a", 6, 6, 6), hours=3)
    assert outcome.usd == pytest.approx(2 * 0.5, abs=0.02)  # two hours with capacity at $0.50


@pytest.mark.parametrize("saver", ["blocking", "background", "differential"])
@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize("uptime_s", [70.0, 500.0, 5_000.0, 40_000.0])
def test_an_attempt_keeps_what_an_independent_simulation_keeps(
    saver: str, *, hears: bool, uptime_s: float
) -> None:
    other = independent.SAVERS[saver]
    costs = SaveCosts()
    end = independent.End(uptime_s, announced=True)
    kept, _ = independent.live(end, other, lambda _costs, _age: 600.0, costs, hears=hears, day_ends=False)
    training = Training(
        saver=SaveTimes(stall_s=other.stall_s, commit_s=other.write_s, slowdown=other.slowdown),
        intervals=constant(
            600.0 + other.stall_s
        ),  # from cut to cut; the other counts from the end of a stall
        reads_notices=hears,
    )
    training.start(independent.RESTART_S, 1.0)
    notice = uptime_s - independent.NOTICE_S
    if hears and notice > independent.RESTART_S:
        training.advance(notice)
    if hears:
        training.notice(uptime_s)
    training.end(uptime_s)
    # The other one has steps of a second, and its first interval is shorter by a stall.
    assert training.kept == pytest.approx(kept, abs=3.0 + other.stall_s)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), policy=st.sampled_from(["ours", "switch", "stay"]))
def test_no_policy_does_better_than_the_oracle_without_notices(seed: int, policy: str) -> None:
    traces = [drawn(name, seed) for name in "abc"]
    rules = Rules(announced=0.0, answer_s=5.0)
    spot = [Candidate(name=each.name, hourly_usd=0.3) for each in traces]
    best = oracle(spot, traces, rules, start_s=0.0, limit_s=48 * HOUR, commit_s=0.0)
    chosen = {"switch": switch, "stay": stay}.get(policy)
    run = Play(
        candidates=spot,
        traces={each.name: each for each in traces},
        training=Training(saver=SaveTimes(stall_s=0.3, commit_s=30.0)),
        rules=rules,
        start_s=0.0,
        limit_s=48 * HOUR,
    )
    outcome = (replace(run, policy=chosen) if chosen is not None else run).run()
    assert outcome.useful_s <= best.useful_s + 5.0


def scenario(share: float, *, restart_s: float = 300.0, deadline: float | None = None) -> Scenario:
    return Scenario(
        traces=[drawn(name, 1, share=share) for name in "abcd"],
        rules=Rules(restart_s=restart_s),
        saver=SaveTimes(stall_s=0.3, commit_s=30.0, slowdown=0.1),
        hours=48 if deadline is None else 24,
        deadline_hours=deadline,
        starts=6,
    )


def test_the_policy_reaches_most_of_the_oracle_and_more_than_simple_policies() -> None:
    ours, switched, stayed, best = compare(scenario(0.5))
    assert best.of_oracle == 1
    assert ours.of_oracle is not None
    assert ours.cost_of_oracle is not None
    assert ours.of_oracle >= 0.98
    assert ours.cost_of_oracle <= 1.03
    assert ours.goodput > switched.goodput > stayed.goodput


@pytest.mark.parametrize("share", [0.15, 0.4, 0.9])
@pytest.mark.parametrize("restart_s", [60.0, 900.0])
def test_each_deadline_is_met_at_the_cost_of_uniform_progress_or_less(share: float, restart_s: float) -> None:
    ours, published = compare(scenario(share, restart_s=restart_s, deadline=30.0))
    assert ours.met == ours.runs
    assert ours.usd_per_hour is not None
    assert published.usd_per_hour is not None
    assert ours.usd_per_hour <= published.usd_per_hour * 1.05


def test_a_deadline_is_met_without_any_spot_capacity() -> None:
    empty = replace(scenario(0.5, deadline=30.0), traces=[trace("a", 0, 900), trace("b", 0, 900)])
    ours, _ = compare(empty)
    assert ours.met == ours.runs
    assert ours.usd_per_hour == pytest.approx(1.05, abs=0.05)  # some moves to and fro, and their restarts


def test_the_same_scenario_gives_the_same_outcomes() -> None:
    assert play(scenario(0.4)) == play(scenario(0.4))
