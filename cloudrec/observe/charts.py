"""Line and area charts as inline SVG: this module computes the geometry, and the template places it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Line = list[tuple[float, float]]  # (step, value), steps ascending

WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 28
_TICKS = 5
_SI = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = 1e-3


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark on an axis: its position in the picture, and its label."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve or one filled band, as SVG path data.

    Args:
        name: the name of the quantity.
        tone: the number of its colour on the page, counted from 1.
        paths: one path for each part without a gap.
        filled: whether the paths enclose areas.
        last: its newest value, for the legend.
    """

    name: str
    tone: int
    paths: tuple[str, ...]
    filled: bool
    last: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with all values that the template needs."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    restarts: tuple[float, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


@dataclass(frozen=True)
class _Frame:
    """The ranges of values that a chart shows."""

    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        low, high = self.x
        return round(_LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT), 1)

    def down(self, value: float) -> float:
        low, high = self.y
        return round(HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 1)

    def path(self, line: Line) -> str:
        return "M" + "L".join(f"{self.across(step)} {self.down(value)}" for step, value in line)


def line_chart(
    title: str, lines: Sequence[Line], *, unit: str, restarts: Sequence[float] = (), from_zero: bool = False
) -> Chart | None:
    """Return a chart of one quantity over the steps; None if it has no values.

    Args:
        title: the chart's title.
        lines: one line for each part without a gap.
        unit: the unit of the values; "" for none.
        restarts: steps at which the workers were started again.
        from_zero: whether the axis begins at 0; False to begin near the smallest value.
    """
    lines = [line for line in lines if line]
    if not lines:
        return None
    values = [value for line in lines for _, value in line]
    frame = _frame(lines, low=0.0 if from_zero else min(values), high=max(values))
    curve = Curve(
        name=title,
        tone=1,
        paths=tuple(_dot_or_path(frame, line) for line in lines),
        filled=False,
        last=short(lines[-1][-1][1]),
    )
    return _chart(title, unit, frame, (curve,), restarts)


def stacked_chart(
    title: str, bands: Sequence[tuple[str, Line]], *, unit: str, restarts: Sequence[float] = ()
) -> Chart | None:
    """Return a stacked chart of several quantities; None if it has no values.

    Args:
        title: the chart's title.
        bands: name and line of each quantity, lowest first; all have the same steps.
        unit: the unit of the values.
        restarts: steps at which the workers were started again.
    """
    if not bands or not bands[0][1]:
        return None
    floor = [(step, 0.0) for step, _ in bands[0][1]]
    edges = [floor]
    for _, line in bands:
        edges.append(
            [(step, under + value) for (step, value), (_, under) in zip(line, edges[-1], strict=True)]
        )
    frame = _frame(edges, low=0.0, high=max(value for _, value in edges[-1]))
    curves = tuple(
        Curve(
            name=name,
            tone=tone,
            paths=(frame.path(upper + lower[::-1]) + "Z",),
            filled=True,
            last=short(line[-1][1]),
        )
        for tone, ((name, line), lower, upper) in enumerate(
            zip(bands, edges, edges[1:], strict=False), start=1
        )
    )
    return _chart(title, unit, frame, curves, restarts)


def short(value: float) -> str:
    """Return a number in few characters: 1.25M, 0.7431, 3.2e-05."""
    size = abs(value)
    for factor, letter in _SI:
        if size >= factor:
            return f"{value / factor:.3g}{letter}"
    if value and size < _SMALL:
        return f"{value:.2g}"
    return f"{value:.4g}"


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return about five round numbers from one value to another."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = min(
        (factor * power for factor in (1, 2, 2.5, 5, 10)), key=lambda step: abs(math.log(step / rough))
    )
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + number) * step for number in range(max(count, 0))]


def _dot_or_path(frame: _Frame, line: Line) -> str:
    """Return a line's path; a single point becomes a diamond, since a line of no length is invisible."""
    if len(line) > 1:
        return frame.path(line)
    ((step, value),) = line
    return f"M{frame.across(step) - 4} {frame.down(value)}l4 -4l4 4l-4 4z"


def _frame(lines: Sequence[Line], *, low: float, high: float) -> _Frame:
    steps = [step for line in lines for step, _ in line]
    # A constant curve has no range, and one of zeros no size; the axis still needs a length.
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    bottom = low if low == 0.0 else low - margin
    left, right = min(steps), max(steps)
    across = (left, right) if right > left else (left - 1, right + 1)
    return _Frame(across, (bottom, high + margin))


def _chart(
    title: str, unit: str, frame: _Frame, curves: tuple[Curve, ...], restarts: Sequence[float]
) -> Chart:
    return Chart(
        title=title,
        unit=unit,
        curves=curves,
        x_ticks=tuple(Tick(at=frame.across(x), label=f"{x:,.0f}") for x in ticks(*frame.x, whole=True)),
        y_ticks=tuple(Tick(at=frame.down(y), label=short(y)) for y in ticks(*frame.y)),
        restarts=tuple(frame.across(step) for step in restarts if frame.x[0] <= step <= frame.x[1]),
    )
