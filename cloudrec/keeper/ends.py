"""The end of a budget: the time at which the money is spent, and the end that the cloud keeps meanwhile.

The guard ends the GPU nodes when the money is spent. The cloud's own end is the second line: it must hold if
the guard dies right now, with all nodes running at the highest price that the request allows. That end moves
away while nodes are missing or cheaper, and the guard moves it in the cloud.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudrec_contract.safe_json import aware_time, record_of, safe_object

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec

ENDING = "end.json"  # the key of the guard's ConfigMap that has the moved end
LONGEST_H = 100 * 365 * 24.0  # dates end in the year 9999
# A smaller change is none: the meter reads to two minutes.
_LEAST = timedelta(minutes=2)
_PART = 0.02  # of the time that is left
TOO_LATE = timedelta(minutes=1)  # the cloud may have begun to end the nodes


@dataclass(frozen=True, kw_only=True)
class Metered:
    """What a cluster has cost so far, and what it costs now.

    Attributes:
        at: the time of the reading.
        spent_usd: USD so far.
        hourly_usd: USD an hour now.
        most_usd: USD an hour with all nodes, each at the highest price that the request allows.
    """

    at: datetime
    spent_usd: float
    hourly_usd: float
    most_usd: float


@dataclass(frozen=True, kw_only=True)
class MovedEnd:
    """The end that the cloud keeps.

    Attributes:
        ordered: the end in the guard's orders when it was moved; another one makes this record void.
        expires: the end in the cloud now, ISO 8601.
    """

    ordered: str = ""
    expires: str = ""

    @classmethod
    def of(cls, text: str, ordered: str) -> MovedEnd:
        """Return the record from the ConfigMap's text; the ordered end if it is void, invalid or absent."""
        try:
            found = record_of(cls, safe_object(text))
            aware_time(found.expires)
        except ValueError:
            return cls(ordered=ordered, expires=ordered)
        return found if found.ordered == ordered else cls(ordered=ordered, expires=ordered)

    def to_json(self) -> str:
        """Return the record as the ConfigMap has it."""
        return json.dumps(asdict(self))


def is_movable(cluster: ClusterSpec) -> bool:
    """Return whether the end of a cluster depends on what it costs."""
    return cluster.has_movable_end


def money_end(cluster: ClusterSpec, metered: Metered, hourly_usd: float) -> datetime | None:
    """Return when the budget is spent at this price, at most the limit; None if never.

    Args:
        cluster: the specification, with a budget.
        metered: what was spent so far.
        hourly_usd: the price until then.
    """
    limit = datetime.fromisoformat(cluster.end_limit) if cluster.end_limit else None
    left = (cluster.budget_usd or 0.0) - metered.spent_usd
    if left <= 0:
        return metered.at
    if not hourly_usd:
        return limit
    end = metered.at + timedelta(hours=min(left / hourly_usd, LONGEST_H))
    return end if limit is None else min(end, limit)


def moved(cluster: ClusterSpec, metered: Metered, kept: MovedEnd) -> str:
    """Return the end to which the cloud's end is to be moved; empty if it stays.

    Args:
        cluster: the specification, with a budget.
        metered: what was spent so far, and the highest price.
        kept: the end that the cloud keeps.
    """
    end = money_end(cluster, metered, max(metered.most_usd, metered.hourly_usd))
    before, soonest = datetime.fromisoformat(kept.expires), metered.at + TOO_LATE
    if end is None or min(end, before) <= soonest:
        return ""
    if abs(end - before) < max(_LEAST, _PART * (before - metered.at)):
        return ""
    return f"{end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
