"""Compare policies on the same traces, from several starts: goodput, cost, deadlines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.planning.spot.policy import Candidate, decide
from cloudrec.planning.spot.references import oracle, stay, switch, uniform_progress
from cloudrec.planning.spot.simulate import Play, Rules
from cloudrec.planning.spot.training import SaveTimes, Training, automatic, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.planning.spot.policy import Decision, Situation
    from cloudrec.planning.spot.simulate import SpotOutcome
    from cloudrec.planning.spot.traces import Trace

ON_DEMAND = "on-demand"
WRITE_SLOWDOWN = 0.1  # of the steps while a checkpoint is written in the background
_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is played.

    Attributes:
        traces: the capacity of each spot candidate, in the order of preference.
        rules: how the cloud behaves, and what a restart takes.
        saver: what a checkpoint costs.
        spot_price: the price of spot nodes as a share of the on-demand price.
        hours: the length of a run without a deadline; the work of one with a deadline.
        deadline_hours: the time in which the work must be done; None without a deadline.
        starts: the number of runs, which begin at times spread over the traces.
    """

    traces: Sequence[Trace]
    rules: Rules
    saver: SaveTimes
    spot_price: float = 0.3
    hours: float = 48.0
    deadline_hours: float | None = None
    starts: int = 16

    @property
    def limit_s(self) -> float:
        """Seconds after which a run ends, done or not."""
        # Late runs are played on, to the end of the work: their cost counts.
        return self.hours * _HOUR_S if self.deadline_hours is None else 2 * self.deadline_hours * _HOUR_S

    @property
    def needed_s(self) -> float:
        """Seconds of traces that a run needs."""
        return (self.deadline_hours or self.hours) * _HOUR_S

    def begins(self) -> list[float]:
        """Return the times in the traces at which the runs begin."""
        last = min(trace.length_s for trace in self.traces) - self.needed_s
        return [last * number / max(self.starts - 1, 1) for number in range(self.starts)]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one policy achieves over all starts.

    Attributes:
        policy: its name.
        goodput: work per second of the run.
        usd_per_hour: the cost of an hour of work, as a share of the on-demand price; None without any work.
        of_oracle: its goodput as a share of the oracle's; None with a deadline.
        cost_of_oracle: its cost of an hour of work as a share of the oracle's; None with a deadline.
        met: the number of deadlines met; None without a deadline.
        runs: the number of runs.
        moves: starts of the run on nodes, on average.
        waited: the share of the time without nodes that are ready.
    """

    policy: str
    goodput: float
    usd_per_hour: float | None
    of_oracle: float | None = None
    cost_of_oracle: float | None = None
    met: int | None = None
    runs: int
    moves: float | None
    waited: float | None


@dataclass(frozen=True)
class _Policy:
    name: str
    decide: Callable[[Situation], Decision]
    is_automatic: bool = True
    reads_notices: bool = True


KEEPER = _Policy("cloudrec", decide)
_SWITCH = _Policy("switch, Young/Daly", switch, is_automatic=False, reads_notices=False)
_STAY = _Policy("stay, Young/Daly", stay, is_automatic=False, reads_notices=False)
_UNIFORM = _Policy("uniform progress", uniform_progress)


def compare(scenario: Scenario) -> list[Result]:
    """Return what each policy achieves, cloudrec's first."""
    policies = [KEEPER, _SWITCH, _STAY] if scenario.deadline_hours is None else [KEEPER, _UNIFORM]
    results = [_result(policy.name, scenario, play(scenario, policy)) for policy in policies]
    if scenario.deadline_hours is not None:
        return results
    best = _oracle(scenario)
    return [_beside(result, best) for result in [*results, best]]


def play(scenario: Scenario, policy: _Policy = KEEPER) -> list[SpotOutcome]:
    """Play a policy from each start."""
    spot = [Candidate(name=trace.name, hourly_usd=scenario.spot_price) for trace in scenario.traces]
    is_due = scenario.deadline_hours is not None
    paid = [Candidate(name=ON_DEMAND, hourly_usd=1.0, is_spot=False)] if is_due else []
    intervals = automatic if policy.is_automatic else constant(young_daly_s(scenario))
    return [
        Play(
            candidates=(*spot, *paid),
            traces={trace.name: trace for trace in scenario.traces},
            training=Training(saver=scenario.saver, intervals=intervals, reads_notices=policy.reads_notices),
            rules=scenario.rules,
            start_s=begin,
            limit_s=scenario.limit_s,
            work_s=scenario.hours * _HOUR_S if is_due else math.inf,
            deadline_s=scenario.deadline_hours * _HOUR_S if scenario.deadline_hours is not None else None,
            policy=policy.decide,
            seed=number,
        ).run()
        for number, begin in enumerate(scenario.begins())
    ]


def young_daly_s(scenario: Scenario) -> float:
    """Return Young's interval, in seconds, with the mean up-time of the first halves of the traces."""
    lengths = [length for trace in scenario.traces for length in trace.up_times(trace.length_s / 2)]
    mean_s = sum(lengths) / len(lengths) if lengths else scenario.needed_s
    saver = scenario.saver
    cost_s = saver.stall_s + saver.slowdown * max(saver.commit_s - saver.stall_s, 0.0)
    return max(math.sqrt(2 * mean_s * cost_s), saver.commit_s, 1.0)


def _result(name: str, scenario: Scenario, outcomes: Sequence[SpotOutcome]) -> Result:
    useful, wall = sum(each.useful_s for each in outcomes), sum(each.wall_s for each in outcomes)
    usd = sum(each.usd for each in outcomes)
    return Result(
        policy=name,
        goodput=useful / wall,
        usd_per_hour=usd / useful * _HOUR_S if useful else None,
        met=sum(each.is_met for each in outcomes) if scenario.deadline_hours is not None else None,
        runs=len(outcomes),
        moves=sum(each.moves for each in outcomes) / len(outcomes),
        waited=sum(each.waited_s for each in outcomes) / wall,
    )


def _oracle(scenario: Scenario) -> Result:
    spot = [Candidate(name=trace.name, hourly_usd=scenario.spot_price) for trace in scenario.traces]
    found = [
        oracle(
            spot,
            scenario.traces,
            scenario.rules,
            start_s=begin,
            limit_s=scenario.limit_s,
            commit_s=scenario.saver.commit_s,
        )
        for begin in scenario.begins()
    ]
    useful, usd = sum(each.useful_s for each in found), sum(each.usd for each in found)
    return Result(
        policy="oracle",
        goodput=useful / (scenario.limit_s * len(found)),
        usd_per_hour=usd / useful * _HOUR_S if useful else None,
        runs=len(found),
        moves=None,
        waited=None,
    )


def _beside(result: Result, best: Result) -> Result:
    cost = None
    if result.usd_per_hour is not None and best.usd_per_hour:
        cost = result.usd_per_hour / best.usd_per_hour
    return Result(
        policy=result.policy,
        goodput=result.goodput,
        usd_per_hour=result.usd_per_hour,
        of_oracle=result.goodput / best.goodput if best.goodput else None,
        cost_of_oracle=cost,
        runs=result.runs,
        moves=result.moves,
        waited=result.waited,
    )
