"""Charts: their geometry as inline SVG, the same values as a table, and as JSON for the page's script."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec.observe.page.human import NONE, duration, short, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.observe.page.curves import Point

    Lines = Sequence[Sequence[Point]]
    XY = tuple[float, float]

WIDTH, HEIGHT = 480, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26
_TICKS = 5
_ROWS = 25  # of the table behind a chart
_LARGEST = 1e15  # an integer that JavaScript reads exactly
TONES = 8  # colours of the style sheet


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark on an axis: its position in the picture, and its label."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class DrawnCurve:
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
    """A chart with all values that the template needs.

    Args:
        key: its id on the page.
        title: its title.
        unit: the unit of its values; "" for none.
        text: what it shows, in a sentence, for those who do not see it.
        headers: the columns of its table.
        rows: the rows of its table.
        data: its values as JSON that is safe inside an element `script`.
    """

    key: str
    title: str
    unit: str
    text: str
    curves: tuple[DrawnCurve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    restarts: tuple[float, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: str
    x_title: str = "Step"
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

    def path(self, line: Sequence[XY]) -> str:
        return "M" + "L".join(f"{self.across(step)} {self.down(value)}" for step, value in line)


def line_chart(
    key: str,
    title: str,
    named: Sequence[tuple[str, Lines]],
    *,
    unit: str = "",
    restarts: Sequence[float] = (),
    from_zero: bool = False,
) -> Chart | None:
    """Return a chart of curves over the steps; None if they have no values.

    Args:
        key: the chart's id on the page.
        title: the chart's title.
        named: name and lines of each curve, one line for each part without a gap.
        unit: the unit of the values; "" for none.
        restarts: steps at which the workers were started again.
        from_zero: whether the axis begins at 0; False to begin near the smallest value.
    """
    shown = [
        _Named(name, number % TONES + 1, found)
        for number, (name, lines) in enumerate(named)
        if (found := [line for line in lines if line])
    ]
    if not shown:
        return None
    flat = [[(point.step, point.value) for point in line] for each in shown for line in each.lines]
    values = [value for line in flat for _, value in line]
    frame = _frame(flat, low=0.0 if from_zero else min(values), high=max(values))
    curves = tuple(
        DrawnCurve(
            name=each.name,
            tone=each.tone,
            paths=tuple(
                _dot_or_path(frame, [(point.step, point.value) for point in line]) for line in each.lines
            ),
            filled=False,
            last=short(each.lines[-1][-1].value),
        )
        for each in shown
    )
    chart = _Drawing(key=key, title=title, unit=unit, kind="line", is_zero=from_zero)
    return chart.finished(frame, curves, shown, restarts)


def stacked_chart(
    key: str,
    title: str,
    named: Sequence[tuple[str, Lines]],
    *,
    unit: str,
    restarts: Sequence[float] = (),
) -> Chart | None:
    """Return a stacked chart of quantities over the steps; None if they have no values.

    Args:
        key: the chart's id on the page.
        title: the chart's title.
        named: name and lines of each quantity, lowest first; all have the same steps.
        unit: the unit of the values.
        restarts: steps at which the workers were started again.
    """
    bands = [(name, _joined(lines)) for name, lines in named]
    if not bands or not bands[0][1]:
        return None
    edges: list[list[XY]] = [[(point.step, 0.0) for point in bands[0][1]]]
    for _, line in bands:
        edges.append(
            [(point.step, under + point.value) for point, (_, under) in zip(line, edges[-1], strict=True)]
        )
    frame = _frame(edges, low=0.0, high=max(value for _, value in edges[-1]))
    curves = tuple(
        DrawnCurve(
            name=name,
            tone=tone,
            paths=(frame.path(upper + lower[::-1]) + "Z",),
            filled=True,
            last=short(line[-1].value),
        )
        for tone, ((name, line), lower, upper) in enumerate(
            zip(bands, edges, edges[1:], strict=False), start=1
        )
    )
    shown = [_Named(name, number, [line]) for number, (name, line) in enumerate(bands, start=1)]
    chart = _Drawing(key=key, title=title, unit=unit, kind="stack", is_zero=True)
    return chart.finished(frame, curves, shown, restarts)


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One point of a chart of dots: its name, and its two values."""

    label: str
    x: float
    y: float


def dot_chart(
    key: str, title: str, dots: Sequence[Dot], *, x_title: str, y_title: str, x_unit: str = ""
) -> Chart | None:
    """Return a chart with one dot for each thing, such as a run; None without dots.

    Args:
        key: the chart's id on the page.
        title: the chart's title.
        dots: the dots.
        x_title: the name of the values across.
        y_title: the name of the values upwards.
        x_unit: is written before each value across, such as $.
    """
    if not dots:
        return None
    values = [dot.y for dot in dots]
    frame = _frame([[(0.0, dots[0].y), *((dot.x, dot.y) for dot in dots)]], low=min(values), high=max(values))
    drawn = DrawnCurve(
        name=y_title,
        tone=1,
        paths=tuple(_dot_or_path(frame, [(dot.x, dot.y)]) for dot in dots),
        filled=True,
        last="",
    )
    ordered = sorted(dots, key=lambda dot: -dot.y)
    data = {
        "kind": "dots",
        "title": title,
        "xTitle": x_title,
        "yTitle": y_title,
        "xUnit": x_unit,
        "dots": [[dot.label, _brief(dot.x), _brief(dot.y)] for dot in dots],
    }
    return Chart(
        key=key,
        title=title,
        unit="",
        text=f"{y_title} from {short(min(values))} to {short(max(values))}, {len(dots)} runs",
        curves=(drawn,),
        x_ticks=tuple(Tick(at=frame.across(x), label=f"{x_unit}{short(x)}") for x in ticks(*frame.x)),
        y_ticks=tuple(Tick(at=frame.down(y), label=short(y)) for y in ticks(*frame.y)),
        restarts=(),
        headers=("Run", x_title, y_title),
        rows=tuple((dot.label, f"{x_unit}{short(dot.x)}", short(dot.y)) for dot in ordered[:_ROWS]),
        data=safe_script(data),
        x_title=x_title,
    )


def ticks(low: float, high: float, *, is_whole: bool = False) -> list[float]:
    """Return about five round numbers from one value to another."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = min(
        (factor * power for factor in (1, 2, 2.5, 5, 10)), key=lambda step: abs(math.log(step / rough))
    )
    if is_whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + number) * step for number in range(max(count, 0))]


def safe_script(document: object) -> str:
    """Return JSON that cannot end the element `script` around it, whatever text it holds."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _joined(lines: Lines) -> list[Point]:
    """Return a curve in the order of its steps; after a resume, the later value of a step counts."""
    by_step = {point.step: point for line in lines for point in line}
    return [by_step[step] for step in sorted(by_step)]


def _dot_or_path(frame: _Frame, line: Sequence[XY]) -> str:
    """Return a line's path; a single point becomes a diamond, since a line of no length is invisible."""
    if len(line) > 1:
        return frame.path(line)
    ((step, value),) = line
    return f"M{frame.across(step) - 4} {frame.down(value)}l4 -4l4 4l-4 4z"


def _frame(lines: Iterable[Sequence[XY]], *, low: float, high: float) -> _Frame:
    steps = [step for line in lines for step, _ in line]
    # A damaged file may have negative values for what begins at zero.
    low, high = min(low, high), max(low, high)
    # A constant curve has no range, and one of zeros no size; the axis still needs a length.
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    bottom = low if low == 0.0 else low - margin
    left, right = min(steps), max(steps)
    pad = max(1.0, abs(left) * 0.05)  # 1 is lost in a number of 17 digits
    across = (left, right) if right > left else (left - pad, right + pad)
    return _Frame(across, (bottom, high + margin))


class _Named(NamedTuple):
    """A curve with its colour, and its lines, none of which is empty."""

    name: str
    tone: int
    lines: Lines


@dataclass(frozen=True, kw_only=True)
class _Drawing:
    """What a chart of curves is called, and how it is drawn."""

    key: str
    title: str
    unit: str
    kind: str
    is_zero: bool

    def finished(
        self,
        frame: _Frame,
        curves: tuple[DrawnCurve, ...],
        named: Sequence[_Named],
        restarts: Sequence[float],
    ) -> Chart:
        data = {
            "kind": self.kind,
            "title": self.title,
            "unit": self.unit,
            "zero": self.is_zero,
            "restarts": [_brief(step) for step in restarts],
            "series": [
                {
                    "name": each.name,
                    "tone": each.tone,
                    "lines": [[_short_point(point) for point in line] for line in each.lines],
                }
                for each in named
            ],
        }
        unit = f", {self.unit}" if self.unit else ""
        return Chart(
            key=self.key,
            title=self.title,
            unit=self.unit,
            text=_summary(named, self.unit),
            curves=curves,
            x_ticks=tuple(Tick(at=frame.across(x), label=short(x)) for x in ticks(*frame.x, is_whole=True)),
            y_ticks=tuple(Tick(at=frame.down(y), label=short(y)) for y in ticks(*frame.y)),
            restarts=tuple(frame.across(step) for step in restarts if frame.x[0] <= step <= frame.x[1]),
            headers=("Step", "Time", *(f"{each.name}{unit}" for each in named)),
            rows=tuple(_table(named)),
            data=safe_script(data),
        )


def _summary(named: Sequence[_Named], unit: str) -> str:
    """Return what curves show, in words."""
    parts = []
    for name, _, lines in named:
        values = [point.value for line in lines for point in line]
        newest = f"{name} {short(values[-1])}{f' {unit}' if unit else ''}"
        parts.append(f"{newest}, from {short(min(values))} to {short(max(values))}")
    return "; ".join(parts[:TONES])


def _table(named: Sequence[_Named]) -> Iterable[tuple[str, ...]]:
    """Yield some rows: the step, the time and the value of each curve at that step or before it."""
    joined = [_joined(each.lines) for each in named]
    points = {point.step: point for line in joined for point in line}
    steps = sorted(points)
    every = max(1, math.ceil(len(steps) / _ROWS))
    chosen = sorted({*steps[::every], steps[-1]})
    for step in chosen:
        cells = []
        for line in joined:
            at = bisect_right(line, step, key=lambda point: point.step)
            cells.append(short(line[at - 1].value) if at else NONE)
        yield whole(step), duration(points[step].time), *cells


def _short_point(point: Point) -> list[float]:
    return [_brief(point.step), round(point.time, 1), round(point.samples), _brief(point.value)]


def _brief(value: float) -> float:
    """Return a number with five digits, which no chart shows more of."""
    brief: Any = float(f"{value:.5g}")
    return int(brief) if brief == int(brief) and abs(brief) < _LARGEST else brief
