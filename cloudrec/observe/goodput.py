"""How much of a run's time was good for something, as its trainer tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.observe.metrics import finite

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """All time since the run was first started.

    Args:
        fraction: the share that went into work whose results were kept.
        parts: seconds by what they were spent on, as the trainer names them: "productive_s".
    """

    fraction: float
    parts: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.parts.values())


def newest_goodput(*records: Mapping[str, Any]) -> Goodput | None:
    """Return what the newest of some records tells, None when none tells of it.

    Time only grows: the newest is the one that accounts for most of it, whichever file was written when.
    """
    told = [goodput for record in records if (goodput := _read(record)) is not None]
    return max(told, key=lambda goodput: goodput.total_s, default=None)


def _read(record: Mapping[str, Any]) -> Goodput | None:
    fraction, parts = finite(record.get("goodput")), record.get("goodput_parts")
    if fraction is None or not isinstance(parts, dict):
        return None
    seconds = {str(name): finite(value) for name, value in parts.items()}
    return Goodput(
        fraction=fraction, parts={name: value for name, value in seconds.items() if value is not None}
    )
