"""What was seen of a candidate's capacity, and what to expect of it.

Capacity is modelled as a process that is up or down, with rates that are estimated from the times seen and a
prior of one end each. After an observation its weight fades with these rates: a candidate that was out of
stock an hour ago may have nodes again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Of one machine: spot traces have 0.55 to 0.61 ends an hour, and stock-outs of about an hour.
PRIOR_UP_S, PRIOR_DOWN_S = 6_000.0, 3_600.0


@dataclass(frozen=True, kw_only=True)
class CapacityHistory:
    """The capacity that was seen of one candidate.

    Attributes:
        is_up: whether it had capacity at the last observation; None before the first.
        at: the time of the last observation, in seconds since the epoch.
        ends: the number of times at which the cloud took nodes back.
        up_s: seconds for which nodes were held.
        returns: the number of times at which a request was fulfilled after a refusal.
        down_s: seconds for which requests stayed open or were refused.
    """

    is_up: bool | None = None
    at: float = 0.0
    ends: int = 0
    up_s: float = 0.0
    returns: int = 0
    down_s: float = 0.0

    def seen(self, now: float, *, is_up: bool, was_watched: bool = True) -> CapacityHistory:
        """Return the history with an observation.

        Args:
            now: the time of the observation, in seconds since the epoch.
            is_up: whether the candidate has capacity now.
            was_watched: whether nodes were held or requested for the whole time since the last observation.
        """
        passed = max(now - self.at, 0.0)
        made = replace(self, is_up=is_up, at=max(now, self.at))
        if self.is_up is None or not was_watched:
            return made
        if self.is_up:
            return replace(made, up_s=self.up_s + passed, ends=self.ends + (not is_up))
        return replace(made, down_s=self.down_s + passed, returns=self.returns + is_up)

    @property
    def lasts_s(self) -> float:
        """The mean time for which nodes are held, in seconds."""
        return (PRIOR_UP_S + self.up_s) / (1 + self.ends)

    @property
    def returns_s(self) -> float:
        """The mean time of a stock-out, in seconds."""
        return (PRIOR_DOWN_S + self.down_s) / (1 + self.returns)

    def chance(self, now: float) -> float:
        """Return the probability that a request is fulfilled now."""
        share = self.lasts_s / (self.lasts_s + self.returns_s)
        if self.is_up is None:
            return share
        fading = math.exp(-max(now - self.at, 0.0) * (1 / self.lasts_s + 1 / self.returns_s))
        return share + (float(self.is_up) - share) * fading
