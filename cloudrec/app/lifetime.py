"""When a cluster ends: worked out from its time to live and its budget once, and kept from then on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.spec.models import ClusterSpec, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.engine.graph import Observed, Resource


def price_of(resources: Iterable[Resource]) -> float:
    """Return the most that these cost an hour: of a choice, its dearest candidate."""
    return sum(
        max((each.hourly_usd for each in resource.candidates), default=resource.hourly_usd)
        for resource in resources
    )


def with_end(
    cluster: ClusterSpec,
    *,
    hourly_usd: float,
    known: ClusterSpec | None,
    searched: Sequence[Observed],
    now: datetime,
) -> ClusterSpec:
    """Return the spec with its end.

    A cluster that has one keeps it, however often `up` is run, until another ttl or budget is asked for.

    Args:
        cluster: what is asked for.
        hourly_usd: what it costs an hour at most.
        known: what was asked for before, from the journal.
        searched: what exists of it; its tags tell the end where the journal was lost.
        now: the time.
    """
    if cluster.expires is not None:
        return cluster
    before = known.expires if known is not None else max(map(end_of, searched), default="") or None
    asked = (cluster.ttl, cluster.budget_usd)
    if before is not None and (asked == (None, None) or known is None or _asked(known) == asked):
        return cluster.model_copy(update={"expires": before})
    ends = []
    if cluster.ttl is not None:
        ends.append(now + timedelta(seconds=seconds_of(cluster.ttl)))
    if cluster.budget_usd is not None and hourly_usd > 0:
        ends.append(now + timedelta(hours=cluster.budget_usd / hourly_usd))
    if not ends:
        return cluster
    return cluster.model_copy(update={"expires": f"{min(ends).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"})


def end_of(found: Observed) -> str:
    """Return the end that a thing's tag tells; empty when it has none."""
    return found.tags.get(TAG_EXPIRES, "")


def is_over(end: str | None, now: datetime) -> bool:
    """Tell whether an end has come; one that cannot be read has not."""
    try:
        return bool(end) and datetime.fromisoformat(end or "") <= now
    except (ValueError, TypeError):
        return False


def _asked(cluster: ClusterSpec) -> tuple[str | None, float | None]:
    return (cluster.ttl, cluster.budget_usd)
