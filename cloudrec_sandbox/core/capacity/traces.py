"""Capacity over time: `capacity_trace` of /_control of every cloud.

`capacity_trace` is a list, which replaces all traces; [] or null ends them. A trace:

    {"zone": "us-east-1a", "instance_type": "p5.48xlarge", "capacity": "spot",
     "gap_seconds": 600, "data": [1, 1, 0, 1], "began": null}

zone, instance_type, capacity  a place of `capacity`, and its parts there
data         by sample: 0 for no machine, 1 for any number; with "counts": true the most that can run at once
gap_seconds  virtual seconds from a sample to the next; the last sample stays
began        the virtual time of the first sample; null for now
notice_s     virtual seconds from the notice of a spot machine to its end; 0 for an end without a notice.
             Without it, the duration spot-notice

A change takes effect at its own moment, also if the clock was advanced by many changes at once. Machines
above the number of a sample get their notice if they are spot machines; others stay. A notice is not taken
back. `capacity` is a limit beside it: of the machines that can still be had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudrec_sandbox.core.book import Book, W
    from cloudrec_sandbox.core.world import World

NOTICE = "spot-notice"  # the duration of a notice
_NEEDED = ("zone", "instance_type", "capacity", "gap_seconds", "data")
_OPTIONAL = ("began", "counts", "notice_s")
_MOST_SAMPLES = 1_000_000


@dataclass
class Trace:
    """The capacity of one place.

    Attributes:
        place: the key of `capacity`.
        wish: what was ordered.
        data: the samples.
        gap_s: seconds between two samples.
        began: virtual time of the first sample.
        counts: whether a sample is a number of machines.
        notice_s: seconds of a notice; None for the duration.
        index: the sample in force; -1 before the first one.
    """

    place: str
    wish: Mapping[str, Any]
    data: Sequence[int]
    gap_s: float
    began: float
    counts: bool
    notice_s: float | None
    index: int = -1

    @property
    def most(self) -> int | None:
        """Return how many machines can run at once now; None for any number."""
        if self.index < 0:
            return None
        sample = self.data[self.index]
        return sample if self.counts or not sample else None

    def following(self) -> int | None:
        """Return the next sample that differs from the one in force; None if there is none."""
        if self.index < 0:
            return 0
        now = self.data[self.index]
        later = range(self.index + 1, len(self.data))
        return next((number for number in later if self.data[number] != now), None)

    def document(self) -> dict[str, Any]:
        """Return it as /_control shows it."""
        shown = {key: self.wish[key] for key in ("zone", "instance_type", "capacity", "gap_seconds")}
        place = {"began": self.began, "samples": len(self.data), "index": self.index, "most": self.most}
        return {**shown, **place}


@dataclass
class Traces:
    """The traces in force, by place; `number` counts the orders, so that steps of earlier ones do nothing."""

    by_place: dict[str, Trace] = field(default_factory=dict)
    number: int = 0


Check = Callable[[Any, str, str, str], str]
Changed = Callable[[Any, str, "int | None", float], None]


def declare(book: Book[W], *, notice_s: float, place: Check, changed: Changed) -> None:
    """Add `capacity_trace` to /_control.

    Args:
        book: the stand-in's declarations.
        notice_s: the cloud's usual notice, in virtual seconds.
        place: returns a world's key of `capacity` for a zone, a type and a capacity type; ValueError if they
            do not exist.
        changed: a function of a module: carries out that a place can have so many machines at once (None for
            any number) in a world, with the seconds of a notice.
    """
    book.durations({NOTICE: notice_s})

    def write(world: World, wishes: object) -> None:
        _write(world, wishes, place, changed)

    book.setting("capacity_trace", read=_read, write=write)


def most(world: World, place: str) -> int | None:
    """Return how many machines a place can have at once by its trace; None for any number."""
    trace = world.state(Traces).by_place.get(place)
    return trace.most if trace else None


def _read(world: World) -> list[dict[str, Any]]:
    return [trace.document() for _, trace in sorted(world.state(Traces).by_place.items())]


def _write(world: World, wishes: object, place: Check, changed: Changed) -> None:
    if not isinstance(wishes, list | None):
        raise ValueError(f"capacity_trace: {wishes!r} is no list")  # noqa: TRY004 - a wrong value of /_control
    traces = [_trace(world, wish, place) for wish in wishes or ()]
    by_place = {trace.place: trace for trace in traces}
    if len(by_place) < len(traces):
        raise ValueError("capacity_trace: a place has two traces")
    state = world.state(Traces)
    ended = set(state.by_place) - set(by_place)
    state.by_place = by_place
    state.number += 1
    for name in sorted(ended):
        changed(world, name, None, 0.0)
    for trace in traces:
        past = math.floor((world.now() - trace.began) / trace.gap_s)
        if past >= 0:
            trace.index = min(past, len(trace.data) - 1)
            _carry_out(world, trace, changed)
        _schedule(world, trace, changed)


def _trace(world: World, wish: object, place: Check) -> Trace:
    """Return the trace of an order; ValueError for anything that is none."""
    if not isinstance(wish, dict):
        raise ValueError(f"capacity_trace: {wish!r} is no trace")  # noqa: TRY004 - a wrong value of /_control
    missing = [name for name in _NEEDED if name not in wish]
    if missing or (unknown := sorted(set(wish) - {*_NEEDED, *_OPTIONAL})):
        what = f"has no {', '.join(missing)}" if missing else f"has an unknown {', '.join(unknown)}"
        raise ValueError(f"capacity_trace: a trace {what}; it has {', '.join((*_NEEDED, *_OPTIONAL))}")
    zone, kind, capacity = (str(wish[name]) for name in _NEEDED[:3])
    data, counts = wish["data"], bool(wish.get("counts", False))
    if not isinstance(data, list) or not 0 < len(data) <= _MOST_SAMPLES:
        raise ValueError(f"capacity_trace of {zone}: data is no list of 1 to {_MOST_SAMPLES} samples")
    if bad := [each for each in data if type(each) is not int or each < 0 or (each > 1 and not counts)]:
        allowed = "a number of machines" if counts else "0 or 1"
        raise ValueError(f"capacity_trace of {zone}: the sample {bad[0]!r} is not {allowed}")
    gap, began, notice = wish["gap_seconds"], wish.get("began"), wish.get("notice_s")
    if not _is_number(gap) or gap <= 0:
        raise ValueError(f"capacity_trace of {zone}: gap_seconds {gap!r} is not above 0")
    if (began is not None and not _is_number(began)) or (
        notice is not None and not (_is_number(notice) and notice >= 0)
    ):
        raise ValueError(f"capacity_trace of {zone}: began {began!r} or notice_s {notice!r} is no time")
    return Trace(
        place=place(world, zone, kind, capacity),
        wish={name: wish[name] for name in _NEEDED[:4]},
        data=tuple(data),
        gap_s=float(gap),
        began=world.now() if began is None else float(began),
        counts=counts,
        notice_s=None if notice is None else float(notice),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _schedule(world: World, trace: Trace, changed: Changed) -> None:
    index = trace.following()
    if index is not None:
        wait = max(0.0, trace.began + index * trace.gap_s - world.now())
        number = world.state(Traces).number
        world.after(wait, _step, trace.place, index, number, changed)


def _step(world: World, place: str, index: int, number: int, changed: Changed) -> None:
    """Put a sample in force, at its moment."""
    state = world.state(Traces)
    trace = state.by_place.get(place)
    if trace is None or state.number != number:
        return
    trace.index = index
    _carry_out(world, trace, changed)
    _schedule(world, trace, changed)


def _carry_out(world: World, trace: Trace, changed: Changed) -> None:
    notice = world.duration(NOTICE) if trace.notice_s is None else trace.notice_s
    changed(world, trace.place, trace.most, notice)
