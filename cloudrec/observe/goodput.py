"""Reads a run's goodput, the productive share of its time, from the trainer's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.observe.metrics import finite

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """The division of all time since the first start of a run.

    Args:
        fraction: the share of the time for work whose results were kept.
        parts: seconds by the trainer's names of the parts, such as "productive_s".
    """

    fraction: float
    parts: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.parts.values())


def newest_goodput(*records: Mapping[str, Any]) -> Goodput | None:
    """Return the newest value of the records; None if no record has one."""
    # The total time only grows, so the record with the largest total is the newest, in whichever file.
    values = [goodput for record in records if (goodput := _read(record)) is not None]
    return max(values, key=lambda goodput: goodput.total_s, default=None)


def _read(record: Mapping[str, Any]) -> Goodput | None:
    fraction, parts = finite(record.get("goodput")), record.get("goodput_parts")
    if fraction is None or not isinstance(parts, dict):
        return None
    seconds = {str(name): finite(value) for name, value in parts.items()}
    return Goodput(
        fraction=fraction, parts={name: value for name, value in seconds.items() if value is not None}
    )
