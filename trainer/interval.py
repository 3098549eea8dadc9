"""When to save: after steps, after seconds, or when it pays; pure but for the clock that is handed in.

`auto` weighs what a checkpoint costs against what an interruption loses. Young's interval between two
checkpoints is sqrt(2 C / h) for a cost C and h interruptions a second. h is not known, and not constant:
spot machines that have lived long live longer. So h is estimated from this run's own past as the hazard of
up-times whose rate differs from one to the next (gamma-distributed: Lomax up-times, heavy-tailed, and near
to exponential ones where the past looks so). An interruption that was announced early enough to save loses
nothing, so it counts as time lived through, not as a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIOR_UPTIME_S = (
    6_000.0  # of one machine, before anything is known: spot traces have 0.55 to 0.61 ends an hour
)
PRIOR_WEIGHT = 1.0  # how many interruptions that guess is worth
WRITE_SHARE = 0.1  # of a write in the background: what it may cost the steps beside it
SHORTEST_S, LONGEST_S = 1.0, 3_600.0
_SCALES_S = tuple(60.0 * 2.0**power for power in range(1, 16))  # of up-times: 2 minutes to 23 days
_RECENT = 8  # saves that a mean is over
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Every:
    """An interval as it is asked for: exactly one of the three."""

    steps: int | None = None
    seconds: float | None = None
    auto: bool = False


def parse_interval(value: object) -> Every:
    """Read 100 (steps; 0 is never), "30s", "10m", "2h" (seconds) or "auto"; ValueError for anything else."""
    text = str(value).strip().lower()
    if text == "auto":
        return Every(auto=True)
    if text.isdecimal():
        return Every(steps=int(text))
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds < math.inf or not number[-1:].isdecimal():
        raise ValueError("must be steps (500, or 0 for never), a time (30s, 10m, 2h), or auto")
    return Every(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Uptime:
    """One stretch of work between two starts."""

    seconds: float
    lost: bool  # it ended without word, or with too little time left to save


class Hazard:
    """How likely it is, after some age, that work ends without word: interruptions a second.

    Args:
        past: earlier up-times, in any order.
        machines: how many there are; each can end the work of all.
    """

    def __init__(self, past: Sequence[Uptime], *, machines: int = 1) -> None:
        prior_s = PRIOR_UPTIME_S / machines
        self._losses = PRIOR_WEIGHT + sum(uptime.lost for uptime in past)
        self._curves = [self._curve(scale_s, past, prior_s) for scale_s in _SCALES_S]

    def __call__(self, age_s: float) -> float:
        """The hazard at an age, given that work has gone on until then."""
        weights, values = [], []
        for scale_s, exposure, log_weight in self._curves:
            lived = exposure + math.log1p(age_s / scale_s)
            weights.append(log_weight - self._losses * math.log(lived))
            values.append(self._losses / lived / (scale_s + age_s))
        best = max(weights)
        shares = [math.exp(weight - best) for weight in weights]
        return sum(map(math.prod, zip(shares, values, strict=True))) / sum(shares)

    @staticmethod
    def _curve(scale_s: float, past: Sequence[Uptime], prior_s: float) -> tuple[float, float, float]:
        """One scale's gamma posterior: its exposure, and the log of its weight without that."""
        prior = PRIOR_WEIGHT * prior_s / scale_s
        exposure = prior + sum(math.log1p(uptime.seconds / scale_s) for uptime in past)
        ends = sum(math.log(scale_s + uptime.seconds) for uptime in past if uptime.lost)
        return scale_s, exposure, PRIOR_WEIGHT * math.log(prior) - ends


@dataclass(slots=True)
class SaveCosts:
    """What saving has cost lately: the steps' stall, and the seconds until all was committed."""

    stalls_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)

    def add(self, stall_s: float, write_s: float) -> None:
        """Count a save; older ones are forgotten."""
        self.stalls_s = [*self.stalls_s, max(stall_s, 0.0)][-_RECENT:]
        self.writes_s = [*self.writes_s, max(write_s, 0.0)][-_RECENT:]

    @property
    def known(self) -> bool:
        """Whether there was a save."""
        return bool(self.stalls_s)

    @property
    def cost_s(self) -> float:
        """Of one checkpoint, in seconds of training."""
        count = max(len(self.stalls_s), 1)
        in_background = max(sum(self.writes_s) - sum(self.stalls_s), 0.0)
        return (sum(self.stalls_s) + WRITE_SHARE * in_background) / count

    @property
    def write_s(self) -> float:
        """From the cut to the commit: the slowest lately."""
        return max(self.writes_s, default=0.0)


def best_interval(costs: SaveCosts, hazard: Hazard, age_s: float) -> float:
    """Seconds from a save at this age to the next; never shorter than a save takes.

    Before the first save nothing is known of its cost: the first comes soon, and is the measurement.
    """
    interval_s = SHORTEST_S
    for _ in range(4):  # the hazard half-way, which depends on the interval
        interval_s = math.sqrt(2.0 * costs.cost_s / hazard(age_s + interval_s / 2))
    return min(max(interval_s, costs.write_s, SHORTEST_S), max(LONGEST_S, costs.write_s))


class CheckpointTimer:
    """Says when a checkpoint is due; `now` is always seconds since this start of the run.

    Args:
        every: the interval that was asked for.
        costs: of saving, as far as known; grows with every save.
        past: up-times before this one, for `auto`.
        machines: how many there are.
    """

    def __init__(
        self, every: Every, *, costs: SaveCosts | None = None, past: Sequence[Uptime] = (), machines: int = 1
    ) -> None:
        self.every = every
        self.costs = costs or SaveCosts()
        self._hazard = Hazard(past, machines=machines)
        self._last_s = 0.0
        self._next_s = 0.0

    @property
    def by_steps(self) -> bool:
        """Whether steps alone decide, so that all ranks know without asking."""
        return self.every.steps is not None

    def begin(self, now: float) -> None:
        """The steps begin."""
        self._plan(now)

    def due(self, step: int, now: float) -> bool:
        """Whether to save after this step."""
        if self.every.steps is not None:
            return self.every.steps > 0 and step % self.every.steps == 0
        return now >= self._next_s

    def halfway(self, step: int, now: float) -> bool:
        """Whether half of the time until the next checkpoint is over."""
        if self.every.steps is not None:
            return self.every.steps > 0 and step % self.every.steps >= self.every.steps / 2
        return now >= (self._last_s + self._next_s) / 2

    def cut(self, now: float) -> None:
        """A checkpoint is taken: the next interval begins."""
        self._plan(now)

    def saved(self, stall_s: float, write_s: float) -> None:
        """A checkpoint is committed, and its cost known."""
        self.costs.add(stall_s, write_s)
        self._plan(self._last_s)

    def _plan(self, now: float) -> None:
        self._last_s = now
        if self.every.seconds is not None:
            self._next_s = now + self.every.seconds
        elif self.every.auto:
            self._next_s = now + best_interval(self.costs, self._hazard, now)


@dataclass(frozen=True, slots=True)
class StopPlan:
    """How a stop is to go."""

    when: Literal["later", "now"]
    save: bool


SAFETY = 1.5  # the last save may take so many times as long as the slowest lately
MARGIN_S = 3.0  # for what comes beside the save: the poll, the commit's round trip, the exit


def plan_stop(seconds_left: float, costs: SaveCosts, *, committed: bool, decided_elsewhere: bool) -> StopPlan:
    """What to do with the seconds that a notice leaves.

    Where the end comes at a known time whatever this run does (`decided_elsewhere`), training goes on while
    more is left than a careful save needs. Then a checkpoint is saved if it fits; if not, the last commit
    stands for it. With nothing committed there is nothing to lose by trying.
    """
    needed_s = SAFETY * costs.write_s + MARGIN_S
    if decided_elsewhere and costs.known and needed_s + MARGIN_S < seconds_left < math.inf:
        return StopPlan("later", save=True)
    return StopPlan("now", save=not committed or not costs.known or costs.write_s <= seconds_left)
