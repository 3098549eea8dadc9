"""When a cluster ends: worked out from its time to live and its budget once, and kept from then on."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Past:
    """What was asked for before, and what it cost an hour at most."""

    cluster: ClusterSpec
    hourly_usd: float


def with_end(
    cluster: ClusterSpec, *, hourly_usd: float, past: Past | None, tagged: str, now: datetime
) -> ClusterSpec:
    """Return the spec with its end.

    A cluster that has one keeps it, however often `up` is run, until another ttl or budget is asked for; a
    ttl or budget that is not asked for again stays in force. Under a budget, a cluster that becomes dearer
    ends the sooner: what is left is spent faster.

    Args:
        cluster: what is asked for.
        hourly_usd: what it costs an hour at most.
        past: what was asked for before, from the journal.
        tagged: the end that the cloud's tags tell, for where the journal was lost; may be empty.
        now: the time.
    """
    if cluster.expires is not None:
        return cluster
    if past is not None:
        kept = {
            "ttl": cluster.ttl or past.cluster.ttl,
            "budget_usd": cluster.budget_usd or past.cluster.budget_usd,
        }
        cluster = cluster.model_copy(update=kept)
    before = past.cluster.expires if past is not None else tagged or None
    unchanged = past is not None and _asked(past.cluster) == _asked(cluster)
    if before is not None and (unchanged or past is None):
        end = before
        if past is not None and cluster.budget_usd is not None and hourly_usd > past.hourly_usd > 0:
            left = datetime.fromisoformat(before) - now
            end = _written(now + left * (past.hourly_usd / hourly_usd))
        return cluster.model_copy(update={"expires": end})
    ends = []
    if cluster.ttl is not None:
        ends.append(now + timedelta(seconds=seconds_of(cluster.ttl)))
    if cluster.budget_usd is not None and hourly_usd > 0:
        ends.append(now + timedelta(hours=cluster.budget_usd / hourly_usd))
    if not ends:
        return cluster
    return cluster.model_copy(update={"expires": _written(min(ends))})


def tagged_end(found: Sequence[Observed], control_plane: str) -> str:
    """Return the end that a cluster's tags tell; empty when they tell none.

    The control plane's own tag counts, since it follows when the end is changed; without one, the latest.
    """
    heads = [seen for seen in found if seen.kind == control_plane] or found
    return max((seen.tags.get(TAG_EXPIRES, "") for seen in heads), default="")


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def is_over(end: str | None, now: datetime) -> bool:
    """Tell whether an end has come; one that cannot be read has not."""
    try:
        return bool(end) and datetime.fromisoformat(end or "") <= now
    except (ValueError, TypeError):
        return False


def _asked(cluster: ClusterSpec) -> tuple[str | None, float | None]:
    return (cluster.ttl, cluster.budget_usd)
