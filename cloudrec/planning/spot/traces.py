"""Capacity over time: for each zone and kind of machine, whether nodes can be had.

The format is that of public spot traces (github.com/skypilot-org/spot-traces): one JSON document a zone and
machine, with `metadata.gap_seconds` and `data`, the number of nodes that can be had in each gap, or 0 and 1
for none and all. A trace is a function of time that changes only at multiples of the gap.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

SHORTEST = 2  # values of a trace
_LONGEST_GAP_S = 86_400.0
_MOST_NODES = 1_000_000


@dataclass(frozen=True)
class Trace:
    """The capacity of one candidate.

    Attributes:
        name: the candidate's name.
        gap_s: seconds for which each value holds.
        data: 1 where nodes can be had, 0 where not.
    """

    name: str
    gap_s: float
    data: Sequence[int]

    @property
    def length_s(self) -> float:
        """Seconds that the trace covers."""
        return self.gap_s * len(self.data)

    @property
    def share(self) -> float:
        """The share of the time with capacity."""
        return sum(self.data) / len(self.data)

    @cached_property
    def _changes(self) -> list[float]:
        """The times at which the value changes, beginning with the first change."""
        return [
            number * self.gap_s
            for number in range(1, len(self.data))
            if self.data[number] != self.data[number - 1]
        ]

    def is_up(self, at: float) -> bool:
        """Return whether nodes can be had at a time. After the last value, the last value holds."""
        return bool(self.data[min(int(at / self.gap_s), len(self.data) - 1)])

    def changes_at(self, after: float) -> float:
        """Return the time of the next change after a time; the trace's end if there is none."""
        found = bisect_right(self._changes, after)
        return self._changes[found] if found < len(self._changes) else self.length_s

    def up_times(self, before: float) -> list[float]:
        """Return the lengths of the times with capacity that begin before a time, in seconds."""
        found, at = list[float](), 0.0
        while at < before:
            until = self.changes_at(at)
            if self.is_up(at):
                found.append(until - at)
            at = until
        return found


@dataclass(frozen=True)
class NodeCounts:
    """A trace as its file has it.

    Attributes:
        name: the candidate's name.
        gap_s: seconds for which each value holds.
        data: the nodes that can be had, or 0 and 1 for none and all.
    """

    name: str
    gap_s: float
    data: Sequence[int]

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """Return the counts of a JSON document; ValueError with the reason if it is no trace."""
        try:
            document = safe_object(text)
            gap_s, data = float(document["metadata"]["gap_seconds"]), document["data"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"it has no {error}" if isinstance(error, KeyError) else "it is no trace"
            ) from None
        if not 1.0 <= gap_s <= _LONGEST_GAP_S:
            raise ValueError(f"metadata.gap_seconds is {gap_s:g}, not between 1 and {_LONGEST_GAP_S:g}")
        if not isinstance(data, list) or len(data) < SHORTEST:
            raise ValueError(f"data is no list of at least {SHORTEST} values")
        wrong = next((value for value in data if not _is_count(value)), None)
        if wrong is not None:
            raise ValueError(f"data has the value {wrong!r}; a value is a number of nodes, or 0 or 1")
        return cls(name, gap_s, tuple(int(value) for value in data))

    @cached_property
    def most(self) -> int:
        """The largest value."""
        return max(self.data)

    def trace(self, nodes: int) -> Trace:
        """Return when this number of nodes can be had."""
        return Trace(self.name, self.gap_s, tuple(int(count >= nodes) for count in self.data))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST_NODES
