"""Goodput of checkpoint policies on simulated spot machines, compared with an oracle that knows every end.

Up-times are exponential, or heavy-tailed as those of real spot machines (Weibull, lognormal), all with one
mean. A job has a day; goodput is the work that is kept at its end, divided by the day. Lost work, checkpoints
and restarts are subtracted. There are no waits for capacity.

    none        never saves: every interruption loses all
    fixed       every 1000 steps of a second
    young       sqrt(2 MTBF C), given the true mean of the up-times
    ours        cloudrec_contract.interval, which is given nothing: it learns from this job's own past
    oracle      saves once before each end, at the last moment at which the save still fits

Three savers: `blocking` stops the steps for the whole save, 30 s; `background` stops them for 0.3 s and
commits 30 s after the cut, slowing the steps in between by a tenth; `differential` commits after 3 s,
since it writes a tenth of the bytes. The oracle has the saver that it is compared with.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cloudrec_contract.interval import Hazard, SaveCosts, Uptime, best_interval, plan_stop

Interval = Callable[[SaveCosts, float], float]  # seconds to the next save, from what saves cost and the age
DAY_S = 86_400.0
MEAN_S = 6_200.0  # 0.58 ends an hour
RESTART_S = 60.0
STEP_S = 1.0
FIXED_STEPS = 1000
JOBS = 40
NOTICE_S = 120.0
ANNOUNCED = 0.9  # of all ends; clouds promise their best effort
TRACES = ("exponential", "Weibull 0.7", "Weibull 0.5", "lognormal 1.5")
GOAL = 0.985


@dataclass(frozen=True, slots=True)
class Saver:
    """What a save costs: the steps stop for `stall_s`, and it counts `write_s` after it began."""

    stall_s: float
    write_s: float
    slowdown: float = 0.0  # of the steps between stall and commit


BLOCKING = Saver(30.0, 30.0)
BACKGROUND = Saver(0.3, 30.0, slowdown=0.1)
DIFFERENTIAL = Saver(0.3, 3.0, slowdown=0.1)


@dataclass(frozen=True, slots=True)
class End:
    """The up-time of a machine, and whether its end is announced."""

    uptime_s: float
    announced: bool


@dataclass(slots=True)
class Life:
    """A machine's work so far, in seconds, and the committed part."""

    work: float = 0.0
    kept: float = 0.0
    at_cut: float = 0.0  # the work that the newest save holds
    committed_at: float = 0.0  # when that save counts

    def cut(self, committed_at: float) -> None:
        """A save begins."""
        self.at_cut, self.committed_at = self.work, committed_at

    def look(self, now: float) -> None:
        """The newest save counts, if it is committed by now."""
        if self.committed_at <= now:
            self.kept = self.at_cut


def draw(trace: str, rng: np.random.Generator) -> float:
    """An up-time; the mean is MEAN_S for every kind."""
    kind, _, shape = trace.partition(" ")
    if kind == "Weibull":
        return MEAN_S / math.gamma(1 + 1 / float(shape)) * float(rng.weibull(float(shape)))
    if kind == "lognormal":
        return float(rng.lognormal(math.log(MEAN_S) - float(shape) ** 2 / 2, float(shape)))
    return float(rng.exponential(MEAN_S))


def job(trace: str, seed: int) -> list[End]:
    """The machines of one day, the last one cut off by the day's end."""
    rng = np.random.default_rng(seed)
    ends: list[End] = []
    left_s = DAY_S
    while left_s > 0:
        uptime_s = min(draw(trace, rng), left_s)
        ends.append(End(uptime_s, bool(rng.random() < ANNOUNCED)))
        left_s -= uptime_s
    return ends


def live(
    end: End, saver: Saver, interval: Interval, costs: SaveCosts, *, hears: bool, day_ends: bool
) -> tuple[float, Uptime]:
    """Simulate one machine from its start; return the work that is kept, and its up-time.

    Where the day ends, all work counts, whether saved or not.
    """
    warned_at = end.uptime_s - NOTICE_S if end.announced and hears and not day_ends else math.inf
    now = min(RESTART_S, end.uptime_s)
    quiet_until = min(end.uptime_s, max(warned_at, now))
    life = Life()
    while True:
        cut_at = max(now + interval(costs, now), life.committed_at)
        stop_at = min(cut_at, quiet_until)
        life.work += worked(now, stop_at, life.committed_at, saver)
        life.look(stop_at)
        if cut_at >= quiet_until:
            break
        now = cut_at + saver.stall_s
        life.cut(cut_at + saver.write_s)
        costs.add(saver.stall_s, saver.write_s)
    if day_ends:
        return life.work, Uptime(end.uptime_s, lost=False)
    life.look(end.uptime_s)
    if warned_at == math.inf:
        return life.kept, Uptime(end.uptime_s, lost=True)
    return heed(end, quiet_until, life, costs, saver)


def heed(end: End, now: float, life: Life, costs: SaveCosts, saver: Saver) -> tuple[float, Uptime]:
    """What a warned machine does, second by second, as the trainer does between its steps."""
    while True:
        plan = plan_stop(end.uptime_s - now, costs, committed=life.kept > 0, decided_elsewhere=True)
        if plan.when == "now":
            break
        now, life.work = now + STEP_S, life.work + STEP_S
    saved = plan.save and now + saver.write_s <= end.uptime_s
    return (life.work if saved else life.kept), Uptime(now, lost=not saved)


def worked(start: float, stop: float, busy_until: float, saver: Saver) -> float:
    """Work from start to stop, of which what lies before `busy_until` is slowed by a write."""
    busy = max(min(stop, busy_until) - start, 0.0)
    return max(stop - start, 0.0) - saver.slowdown * busy


def a_day(ends: list[End], make: Callable[[list[Uptime]], Interval], saver: Saver, *, hears: bool) -> float:
    """The work kept of a day in which every start knows what the earlier ones have learnt."""
    past: list[Uptime] = []
    costs, kept = SaveCosts(), 0.0
    for number, end in enumerate(ends, 1):
        done, uptime = live(end, saver, make(past), costs, hears=hears, day_ends=number == len(ends))
        kept += done
        past.append(uptime)
    return kept


def none(ends: list[End]) -> float:
    """Without a checkpoint only what the day's last machine has done is kept."""
    return max(ends[-1].uptime_s - RESTART_S, 0.0)


def oracle(ends: list[End], saver: Saver) -> float:
    """One save right before each end, and none at the day's end."""
    return none(ends) + sum(max(end.uptime_s - RESTART_S - saver.write_s, 0.0) for end in ends[:-1])


def constant(seconds: float) -> Callable[[list[Uptime]], Interval]:
    """Always the same interval."""
    return lambda _past: lambda _costs, _age_s: seconds


def ours(past: list[Uptime]) -> Interval:
    """What `--checkpoint_interval auto` does."""
    hazard = Hazard(past)
    return lambda costs, age_s: best_interval(costs, hazard, age_s)


def young(saver: Saver) -> Callable[[list[Uptime]], Interval]:
    """Young's interval, with the true mean of the up-times."""
    costs = SaveCosts([saver.stall_s], [saver.write_s])
    return constant(math.sqrt(2 * MEAN_S * costs.cost_s))


SAVERS = {"blocking": BLOCKING, "background": BACKGROUND, "differential": DIFFERENTIAL}
POLICIES: dict[str, Callable[[list[End], Saver], float]] = {
    "none": lambda ends, _saver: none(ends),
    "fixed": lambda ends, saver: a_day(ends, constant(FIXED_STEPS * STEP_S), saver, hears=False),
    "young": lambda ends, saver: a_day(ends, young(saver), saver, hears=False),
    "ours, no notice": lambda ends, saver: a_day(ends, ours, saver, hears=False),
    "ours, notice": lambda ends, saver: a_day(ends, ours, saver, hears=True),
    "oracle": oracle,
}


def measure(days: list[list[End]], saver: Saver) -> dict[str, float]:
    """Mean goodput of every policy over the same days."""
    return {
        name: sum(policy(ends, saver) for ends in days) / DAY_S / len(days)
        for name, policy in POLICIES.items()
    }


def table(jobs: int) -> str:
    """All policies on all traces, each also as a share of the goodput of its saver's oracle."""
    days = {trace: [job(trace, seed) for seed in range(jobs)] for trace in TRACES}
    lines = ["| saver | policy | " + " | ".join(TRACES) + " |", "|---|---|" + "---|" * len(TRACES)]
    for saver_name, saver in SAVERS.items():
        results = {trace: measure(days[trace], saver) for trace in TRACES}
        for name in POLICIES:
            cells = [f"{found[name]:.3f} ({found[name] / found['oracle']:.1%})" for found in results.values()]
            lines.append(f"| {saver_name} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table; with --write, record it."""
    parser = argparse.ArgumentParser(description="Simulate checkpoint policies on spot machines.")
    parser.add_argument("--jobs", type=int, default=JOBS, help="days simulated a trace")
    parser.add_argument("--write", action="store_true", help="record it in benchmarks/results/")
    arguments = parser.parse_args()
    jobs = arguments.jobs
    text = f"""{(__doc__ or "").strip()}

Mean up-time {MEAN_S:.0f} s, restart {RESTART_S:.0f} s, {jobs} days a trace, seeds from 0.
With notices, {ANNOUNCED:.0%} of the ends are announced {NOTICE_S:.0f} s ahead.
Goodput, and its share of the oracle's; the goal is {GOAL:.1%} of it.
A simulation: nothing here depends on the machine.

{table(jobs)}
"""
    print(text)
    if arguments.write:
        day = datetime.now(UTC).date().isoformat()
        path = Path(__file__).parent / "results" / f"interval-{day}.md"
        path.write_text(f"# Checkpoint intervals, {day}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
