"""The interval between checkpoints: in steps, in seconds, or computed from costs and interruptions (`auto`).

`auto` compares the cost of a checkpoint with the work that an interruption loses. Young's interval between
two checkpoints is sqrt(2 C / h) for a cost C and h interruptions per second. h is unknown and not constant:
the longer a spot machine has run, the lower its rate. So h is the hazard that is estimated from the up-times
of this run, with a rate that differs between up-times (gamma-distributed rates give Lomax up-times, which
are heavy-tailed, and near to exponential if the data is). An interruption announced early enough to save
loses nothing, so it counts as an up-time without a loss.

Nothing here reads a clock: callers pass the time.
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
# Likewise, of a machine that no one takes back. Hardware alone fails 6.5 times in 1000 node-days (Kokolis et
# al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2025); a run's own crashes
# come on top, so the guess is a week.
STEADY_UPTIME_S = 7 * 86_400.0
FRAGILE_SHARE = 0.01  # of the runs on such machines, which are interrupted as often as those on spot machines
PRIOR_WEIGHT = 1.0  # how many interruptions that guess is worth
WRITE_SHARE = 0.1  # of a write in the background: what it may cost the steps beside it
SHORTEST_S, LONGEST_S = 1.0, 3_600.0
_SCALES_S = tuple(60.0 * 2.0**power for power in range(1, 16))  # of up-times: 2 minutes to 23 days
_RECENT = 8  # saves that a mean is over
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Every:
    """A configured interval; exactly one of the three is set."""

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
    """The time of one attempt, from its start to its end."""

    seconds: float
    lost: bool  # it ended without a notice, or with too little time to save


class Hazard:
    """The rate of unannounced interruptions, per second, as a function of the attempt's age.

    Args:
        past: earlier up-times, in any order.
        machines: the number of machines; an interruption of any one ends the attempt.
        uptime_s: of one machine, which counts as one interruption beside those that this run had. If it is
            longer than a spot machine's, a small share of runs is taken to be interrupted as often as on
            spot machines, so that the first losses show such a run.
    """

    def __init__(
        self, past: Sequence[Uptime], *, machines: int = 1, uptime_s: float = PRIOR_UPTIME_S
    ) -> None:
        shares = {uptime_s: 1.0}
        if uptime_s > PRIOR_UPTIME_S:
            shares = {uptime_s: 1.0 - FRAGILE_SHARE, PRIOR_UPTIME_S: FRAGILE_SHARE}
        self._losses = PRIOR_WEIGHT + sum(uptime.lost for uptime in past)
        self._curves = [
            self._curve(scale_s, past, prior_s / machines, share)
            for prior_s, share in shares.items()
            for scale_s in _SCALES_S
        ]

    def __call__(self, age_s: float) -> float:
        """Return the hazard at an age, given that the attempt has reached it."""
        weights, values = [], []
        for scale_s, exposure, log_weight in self._curves:
            lived = exposure + math.log1p(age_s / scale_s)
            weights.append(log_weight - self._losses * math.log(lived))
            values.append(self._losses / lived / (scale_s + age_s))
        best = max(weights)
        shares = [math.exp(weight - best) for weight in weights]
        return sum(map(math.prod, zip(shares, values, strict=True))) / sum(shares)

    @staticmethod
    def _curve(
        scale_s: float, past: Sequence[Uptime], prior_s: float, share: float
    ) -> tuple[float, float, float]:
        """Return a scale's gamma posterior: the scale, its exposure, and the log of its weight without it."""
        prior = PRIOR_WEIGHT * prior_s / scale_s
        exposure = prior + sum(math.log1p(uptime.seconds / scale_s) for uptime in past)
        ends = sum(math.log(scale_s + uptime.seconds) for uptime in past if uptime.lost)
        return scale_s, exposure, math.log(share) + PRIOR_WEIGHT * math.log(prior) - ends


@dataclass(slots=True)
class SaveCosts:
    """The costs of recent saves: the pause of training, and the seconds until the commit."""

    stalls_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)

    def add(self, stall_s: float, write_s: float) -> None:
        """Add a save; only the most recent ones are kept."""
        self.stalls_s = [*self.stalls_s, max(stall_s, 0.0)][-_RECENT:]
        self.writes_s = [*self.writes_s, max(write_s, 0.0)][-_RECENT:]

    @property
    def known(self) -> bool:
        """Whether any save was measured."""
        return bool(self.stalls_s)

    @property
    def cost_s(self) -> float:
        """The mean cost of a checkpoint, in seconds of training."""
        count = max(len(self.stalls_s), 1)
        in_background = max(sum(self.writes_s) - sum(self.stalls_s), 0.0)
        return (sum(self.stalls_s) + WRITE_SHARE * in_background) / count

    @property
    def write_s(self) -> float:
        """The longest recent time from the cut to the commit, in seconds."""
        return max(self.writes_s, default=0.0)


def best_interval(costs: SaveCosts, hazard: Hazard, age_s: float) -> float:
    """Return the seconds from a save at this age to the next; never shorter than a save takes.

    Before the first save its cost is unknown, so the interval is the shortest one: that save measures it.
    """
    interval_s = SHORTEST_S
    # The hazard is taken at the middle of the interval, so the equation is solved by iteration.
    for _ in range(4):
        interval_s = math.sqrt(2.0 * costs.cost_s / hazard(age_s + interval_s / 2))
    return min(max(interval_s, costs.write_s, SHORTEST_S), max(LONGEST_S, costs.write_s))


class CheckpointTimer:
    """Decides when a checkpoint is due; `now` is always in seconds since this attempt began.

    Args:
        every: the configured interval.
        costs: of earlier saves; `saved` adds to it.
        past: earlier up-times, for `auto`.
        machines: the number of machines, for `auto`.
        uptime_s: expected of one machine, for `auto`.
    """

    def __init__(
        self,
        every: Every,
        *,
        costs: SaveCosts | None = None,
        past: Sequence[Uptime] = (),
        machines: int = 1,
        uptime_s: float = PRIOR_UPTIME_S,
    ) -> None:
        self.every = every
        self.costs = costs or SaveCosts()
        self._hazard = Hazard(past, machines=machines, uptime_s=uptime_s)
        self._last_s = 0.0
        self._next_s = 0.0
        self._retry_s = math.inf

    @property
    def by_steps(self) -> bool:
        """Whether only the step number decides, so that all ranks agree without an exchange."""
        return self.every.steps is not None

    def begin(self, now: float) -> None:
        """Start the first interval."""
        self._plan(now)

    def due(self, step: int, now: float) -> bool:
        """Whether to save after this step."""
        if self.every.steps is not None:
            return self.every.steps > 0 and step % self.every.steps == 0
        return now >= self._next_s

    def retry_due(self, now: float) -> bool:
        """Whether to save again because the last save failed."""
        return now >= self._retry_s

    def failed(self, now: float, wait_s: float) -> None:
        """Plan another try this long after a save failed."""
        self._retry_s = now + wait_s

    def halfway(self, step: int, now: float) -> bool:
        """Whether half of the interval until the next checkpoint has passed."""
        if self.every.steps is not None:
            return self.every.steps > 0 and step % self.every.steps >= self.every.steps / 2
        return now >= (self._last_s + self._next_s) / 2

    def cut(self, now: float) -> None:
        """Start the next interval, when the state of a checkpoint is frozen."""
        self._retry_s = math.inf
        self._plan(now)

    def saved(self, stall_s: float, write_s: float) -> None:
        """Record the cost of a committed checkpoint, and plan the next one by it."""
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
    """Whether to stop now or later, and whether to save first."""

    when: Literal["later", "now"]
    save: bool


SAFETY = 1.5  # the last save may take this many times as long as the slowest recent one
MARGIN_S = 3.0  # for the poll, the commit's round trip and the exit


def plan_stop(seconds_left: float, costs: SaveCosts, *, committed: bool, decided_elsewhere: bool) -> StopPlan:
    """Decide how to use the seconds that a notice leaves.

    If the end comes at a fixed time that this run cannot change (`decided_elsewhere`), training continues
    while more time is left than a save needs, with a margin. Then a checkpoint is saved if there is time for
    it; otherwise the last committed one is used. Without any committed checkpoint, a save is always tried.
    """
    needed_s = SAFETY * costs.write_s + MARGIN_S
    if decided_elsewhere and costs.known and needed_s + MARGIN_S < seconds_left < math.inf:
        return StopPlan("later", save=True)
    return StopPlan("now", save=not committed or not costs.known or costs.write_s <= seconds_left)
