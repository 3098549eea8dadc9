"""When a checkpoint is due: by steps, by time or automatically; and the use of the time after a notice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import interval as simulation
from cloudrec_contract.interval import (
    STEADY_UPTIME_S,
    CheckpointTimer,
    Every,
    Hazard,
    SaveCosts,
    StopPlan,
    Uptime,
    best_interval,
    parse_interval,
    plan_stop,
)


def _costs(stall_s: float, write_s: float | None = None) -> SaveCosts:
    return SaveCosts([stall_s], [stall_s if write_s is None else write_s])


def _lost(*seconds: float) -> list[Uptime]:
    return [Uptime(each, lost=True) for each in seconds]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, Every(steps=0)),
        ("500", Every(steps=500)),
        ("1e3s", Every(seconds=1000)),
        ("30s", Every(seconds=30)),
        ("1.5m", Every(seconds=90)),
        (" 2H ", Every(seconds=7200)),
        ("auto", Every(auto=True)),
    ],
)
def test_an_interval_is_steps_a_time_or_auto(given: object, meant: Every) -> None:
    assert parse_interval(given) == meant


@pytest.mark.parametrize(
    "given", ["", "s", "-1", "-5s", "0s", "infs", "nans", "30 days", "10x", "often", 1.5, None]
)
def test_an_invalid_interval_is_reported(given: object) -> None:
    with pytest.raises(ValueError, match="must be steps"):
        parse_interval(given)


def test_without_history_the_hazard_is_the_prior_and_decreases_with_age() -> None:
    hazard = Hazard([])
    assert 1 / 12_000 < hazard(0) < 1 / 3_000
    ages = [hazard(age) for age in (0, 600, 6_000, 60_000, 600_000)]
    assert ages == sorted(ages, reverse=True)
    assert Hazard([], machines=8)(0) > 4 * hazard(0)


def test_machines_that_are_kept_are_saved_less_often_until_they_are_lost() -> None:
    spot, kept = (
        CheckpointTimer(Every(auto=True)),
        CheckpointTimer(Every(auto=True), uptime_s=STEADY_UPTIME_S),
    )
    lossy = CheckpointTimer(Every(auto=True), past=_lost(900, 900), uptime_s=STEADY_UPTIME_S)
    for timer in (spot, kept, lossy):
        timer.begin(0.0)
        assert timer.due(1, 1.0)  # the first one measures the cost
        timer.cut(1.0)
        timer.saved(0.5, 5.0)
    assert [spot.due(2, 1.0 + age) for age in (60, 180)] == [False, True]
    assert [kept.due(2, 1.0 + age) for age in (600, 1000)] == [False, True]
    assert [lossy.due(2, 1.0 + age) for age in (30, 120)] == [False, True]


def test_losses_raise_the_hazard_and_announced_preemptions_lower_it() -> None:
    age = 1_000
    assert Hazard(_lost(300, 200, 400))(age) > Hazard([])(age) > Hazard([Uptime(40_000, lost=False)])(age)


def test_exponential_lifetimes_give_their_rate_at_any_age() -> None:
    hazard = Hazard(_lost(*np.random.default_rng(1).exponential(1_000, 2_000)))
    assert [hazard(age) * 1_000 for age in (10, 1_000, 3_000)] == pytest.approx([1, 1, 1], rel=0.1)


def test_heavy_tailed_lifetimes_give_a_hazard_that_decreases_like_the_true_one() -> None:
    # Lomax of shape 1.5 and scale 960 s: the true hazard is 1.5 / (960 + age)
    uptimes = 960 * np.random.default_rng(2).pareto(1.5, 2_000)
    hazard = Hazard(_lost(*uptimes))
    for age in (0, 1_000, 10_000, 50_000):
        assert hazard(age) == pytest.approx(1.5 / (960 + age), rel=0.15)


def test_auto_selects_the_interval_with_the_least_loss() -> None:
    # constant hazard h: a fraction C/T + h T/2 of the time is lost; the best T by trying all
    hazard = Hazard(_lost(*np.random.default_rng(3).exponential(5_000, 3_000)))
    tried = np.arange(10.0, 4_000.0)
    best = float(tried[np.argmin(20 / tried + tried / 5_000 / 2)])
    assert best_interval(_costs(20), hazard, 1_000) == pytest.approx(best, rel=0.08)


def test_auto_saves_less_often_with_the_age_of_the_machine() -> None:
    hazard = Hazard(_lost(60, 120, 200, 40_000))
    intervals = [best_interval(_costs(5), hazard, age) for age in (0, 600, 6_000, 30_000)]
    assert intervals == sorted(intervals)
    assert intervals[-1] > 2 * intervals[0]


def test_a_save_never_starts_before_the_previous_one_is_written() -> None:
    hazard = Hazard(_lost(*[30.0] * 50))
    assert best_interval(_costs(0.01, 45.0), hazard, 10) == 45
    assert best_interval(_costs(0.0, 0.0), hazard, 10) == 1  # nor at every step where saves cost nothing


def test_the_first_save_is_early_to_measure_the_cost() -> None:
    timer = CheckpointTimer(Every(auto=True))
    timer.begin(100.0)
    assert not timer.due(1, 100.5)
    assert timer.due(2, 101.0)
    timer.cut(102.0)
    timer.saved(10.0, 10.0)  # a while later: the interval counts from the cut
    assert not timer.due(3, 202.0)
    assert timer.due(4, 102.0 + best_interval(_costs(10), Hazard([]), 102.0))


def test_an_interval_in_seconds_counts_from_the_last_save() -> None:
    timer = CheckpointTimer(Every(seconds=30))
    timer.begin(7.0)
    assert [timer.due(0, now) for now in (36.9, 37.0, 50.0)] == [False, True, True]
    timer.cut(51.0)
    timer.saved(1.0, 20.0)
    assert [timer.due(0, now) for now in (80.9, 81.0)] == [False, True]


def test_an_interval_in_steps_ignores_the_clock() -> None:
    timer = CheckpointTimer(Every(steps=4))
    assert timer.by_steps
    assert [step for step in range(1, 13) if timer.due(step, 0.0)] == [4, 8, 12]
    assert not CheckpointTimer(Every(steps=0)).due(1, 1e9)


def test_the_middle_of_an_interval_is_determined_by_steps_or_by_time() -> None:
    by_steps, by_time = CheckpointTimer(Every(steps=6)), CheckpointTimer(Every(seconds=30))
    assert [step for step in range(1, 13) if by_steps.halfway(step, 0.0)] == [3, 4, 5, 9, 10, 11]
    assert not CheckpointTimer(Every(steps=0)).halfway(1, 1e9)
    by_time.begin(7.0)
    assert [by_time.halfway(0, now) for now in (7.0, 21.9, 22.0)] == [False, False, True]
    by_time.cut(40.0)
    assert [by_time.halfway(0, now) for now in (54.9, 55.0)] == [False, True]


def test_the_cost_is_estimated_from_the_newest_saves() -> None:
    costs = SaveCosts()
    assert not costs.known
    costs.add(100.0, 100.0)
    for _ in range(8):
        costs.add(1.0, 11.0)
    assert costs.write_s == 11.0
    assert costs.cost_s == pytest.approx(2.0)  # a tenth of the write is felt


@pytest.mark.parametrize(
    ("seconds_left", "committed", "decided_elsewhere", "plan"),
    [
        (math.inf, True, False, StopPlan("now", save=True)),  # a stop on request
        (math.inf, True, True, StopPlan("now", save=True)),  # no one knows when
        (120.0, True, False, StopPlan("now", save=True)),  # a user waits for the end
        (120.0, True, True, StopPlan("later", save=True)),  # the cloud will end it anyway
        (20.0, True, True, StopPlan("now", save=True)),
        (9.0, True, True, StopPlan("now", save=False)),  # a write takes 10 s: the last commit is kept
        (9.0, False, True, StopPlan("now", save=True)),  # there is none: nothing to lose
        (0.0, True, False, StopPlan("now", save=False)),
    ],
)
def test_the_time_after_a_notice_is_used_for_training_for_a_checkpoint_or_not_at_all(
    seconds_left: float, plan: StopPlan, *, committed: bool, decided_elsewhere: bool
) -> None:
    asked = {"committed": committed, "decided_elsewhere": decided_elsewhere}
    assert plan_stop(seconds_left, _costs(0.1, 10.0), **asked) == plan


def test_a_write_of_unknown_cost_is_tried() -> None:
    assert plan_stop(5.0, SaveCosts(), committed=True, decided_elsewhere=True) == StopPlan("now", save=True)


@pytest.mark.parametrize("trace", ["exponential", "Weibull 0.5", "lognormal 1.5"])
def test_auto_with_notices_is_close_to_an_oracle_on_unknown_machines(trace: str) -> None:
    days = [simulation.job(trace, seed) for seed in range(3)]
    goodput = simulation.measure(days, simulation.DIFFERENTIAL)
    assert goodput["ours, notice"] > 0.985 * goodput["oracle"]
    assert goodput["ours, notice"] > goodput["young"] > goodput["fixed"] > goodput["none"]
