"""The picture of a plan: cost against time of every offer, the best ones marked, and a table of all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.observe.page.render import asset, render, sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.planning.fit.offers import PlannedOffer

WIDTH, HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class PlanPoint:
    """An offer in the picture.

    Attributes:
        offer: the offer.
        x: its place from the left.
        y: its place from the top.
        best: whether no other offer is both cheaper and faster.
    """

    offer: PlannedOffer
    x: float
    y: float
    best: bool


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        values = [
            step * 10.0**power
            for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for step in _STEPS
        ]
        return [(self.place(each), f"{each:,.10g}") for each in values if self.low <= each <= self.high]


def plan_page(offers: Sequence[PlannedOffer], *, title: str, notes: Sequence[str]) -> str:
    """Return the page: one file without scripts or anything from elsewhere.

    Args:
        offers: those that can do the run, in the order of the table; without cost or time they are left out.
        title: what is planned.
        notes: what the figures are.
    """
    known = [each for each in offers if each.usd and each.hours]
    front = pareto_front(known)
    style = asset("page.css") + asset("plan.css")
    across = _axis([each.hours or 1.0 for each in known], _LEFT, WIDTH - _RIGHT)
    down = _axis([each.usd or 1.0 for each in known], HEIGHT - _BOTTOM, _TOP)
    points = [
        PlanPoint(
            offer=each,
            x=across.place(each.hours or 1.0),
            y=down.place(each.usd or 1.0),
            best=each in front,
        )
        for each in known
    ]
    line = " ".join(f"{each.x},{each.y}" for each in sorted(points, key=lambda each: each.x) if each.best)
    return render(
        "plan.html.j2",
        title=title,
        notes=notes,
        points=points,
        line=line,
        across=across.ticks,
        down=down.ticks,
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        bottom=HEIGHT - _BOTTOM,
        right=WIDTH - _RIGHT,
        style=style,
        policy=f"default-src 'none'; style-src {sha256(style)}",
    )


def pareto_front(offers: Sequence[PlannedOffer]) -> list[PlannedOffer]:
    """Return the offers than which no other is both as cheap and as fast, the fastest first."""
    front: list[PlannedOffer] = []
    for each in sorted(offers, key=lambda each: (each.hours or 0.0, each.usd or 0.0)):
        if not front or (each.usd or 0.0) < (front[-1].usd or 0.0):
            front.append(each)
    return front


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    low, high = min(values, default=1.0), max(values, default=1.0)
    return _Axis(low=low / 1.3, high=high * 1.3, start=start, end=end)
