"""The expiry of a cluster: computed once from its time to live and its budget, and then kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudrec.engine.cost import Cost
from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.errors import SpecError, UsageError
from cloudrec.keeper.ends import is_movable
from cloudrec.providers.base.protocol import END_SCHEDULE
from cloudrec.spec.durations import seconds_of
from cloudrec.spec.models import MAX_TTL, MIN_TTL, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.engine.graph import Observed, Resource


def price_of(resources: Iterable[Resource]) -> Cost:
    """Return the highest hourly cost of resources; a choice counts with its most expensive candidate."""
    return Cost.of(price for resource in resources for price in resource.most)


_SMALL = 0.02  # of the time that is left
_LONGEST_H = 100 * 365 * 24.0  # the limit on the time that a budget lasts, since dates end in the year 9999


@dataclass(frozen=True, kw_only=True)
class Past:
    """The previous request for a cluster, and its highest hourly cost."""

    cluster: ClusterSpec
    cost: Cost


def with_end(
    cluster: ClusterSpec, *, cost: Cost, past: Past | None, tagged: str, now: datetime
) -> ClusterSpec:
    """Return the specification with its expiry.

    Another `up` keeps the expiry of a cluster until the request has another ttl or budget; a ttl or budget
    that the request does not repeat stays in force. With a budget, a cluster that becomes more expensive
    expires earlier, because the rest of the budget is spent faster.

    An expiry that has passed is never kept: a ttl or a budget in the request starts a new one, and a request
    with neither is refused, because the guard would remove the new nodes immediately.

    Args:
        cluster: the request.
        cost: its highest hourly cost.
        past: the previous request, from the journal.
        tagged: the expiry in the cloud's tags, in case the journal was lost; may be empty.
        now: the time.

    Raises:
        SpecError: there is a budget, but a price is unknown, so the spending cannot be computed.
        UsageError: the cluster's expiry has passed, and the request has no new one.
    """
    if cluster.budget_usd is not None:
        _refuse_unknown(cluster, cost)
    if cluster.expires is not None:
        _refuse_after_block(cluster)
        is_kept = past is not None and past.cluster.expires == cluster.expires
        limit = past.cluster.end_limit if past is not None and is_kept else cluster.expires
        return cluster.model_copy(update={"end_limit": limit})
    before = past.cluster.expires if past is not None else tagged or None
    is_ended = is_over(before, now)
    if is_ended and cluster.ttl is None and cluster.budget_usd is None and cluster.block is None:
        raise UsageError(
            f"cluster {cluster.title!r} ended at {before}, and no new expiry is given",
            remedy=f"give one with --ttl or --budget: cloudrec up {cluster.provider} --cluster "
            f"{cluster.title} --ttl 8h; or remove the cluster: cloudrec down --cluster {cluster.title}",
        )
    if past is not None:
        kept = {
            "ttl": cluster.ttl or past.cluster.ttl,
            "budget_usd": cluster.budget_usd or past.cluster.budget_usd,
        }
        cluster = cluster.model_copy(update=kept)
    unchanged = past is not None and _limits(past.cluster) == _limits(cluster)
    if before is not None and not is_ended and (unchanged or past is None):
        end = before
        if past is not None and cluster.budget_usd is not None and cost != past.cost:
            end = _sooner(cluster, before, cost, past.cost, now)
        limit = past.cluster.end_limit if past is not None else None
        return cluster.model_copy(update={"expires": end, "end_limit": limit})
    ends = _new_ends(cluster, cost, now)
    if not ends:
        return cluster
    limits = _fixed_ends(cluster, now)
    limit = _written(min(limits)) if limits else None
    return cluster.model_copy(update={"expires": _written(min(ends)), "end_limit": limit})


def settled_end(cluster: ClusterSpec, *, rate: Cost, spent_usd: float, now: datetime) -> ClusterSpec:
    """Return the specification with the end of its budget at the price of what exists.

    `with_end` computes the end before anything exists, with the most expensive candidate. The nodes that were
    made may be cheaper, and a stock-out costs nothing, so the budget lasts longer.

    Args:
        cluster: the specification with an expiry.
        rate: the hourly cost of what exists.
        spent_usd: what the cluster has cost so far, in USD.
        now: the time.
    """
    if cluster.budget_usd is None or cluster.expires is None or rate.unknown or not rate.known_usd:
        return cluster
    hours = min((cluster.budget_usd - spent_usd) / rate.known_usd, _LONGEST_H)
    before = datetime.fromisoformat(cluster.expires)
    limit = datetime.fromisoformat(cluster.end_limit) if cluster.end_limit else None
    end = min(filter(None, (now + timedelta(hours=hours), limit)))
    # The meter reads to the minute: a small difference is none.
    if end <= now + MIN_TTL or abs(end - before) < max(_SMALL * (end - now), MIN_TTL):
        return cluster
    return cluster.model_copy(update={"expires": _written(end)})


def _new_ends(cluster: ClusterSpec, cost: Cost, now: datetime) -> list[datetime]:
    """Return the ends of the ttl, of the block and of the budget, of those that the specification has."""
    ends = _fixed_ends(cluster, now)
    # The budget of a cluster with a block covers all of it: see `check_block`.
    if cluster.budget_usd is not None and cluster.block is None:
        _refuse_unknown(cluster, cost)
        if cost.known_usd:
            ends.append(now + timedelta(hours=min(cluster.budget_usd / cost.known_usd, _LONGEST_H)))
    return ends


def _fixed_ends(cluster: ClusterSpec, now: datetime) -> list[datetime]:
    """Return the ends that do not depend on what the cluster costs."""
    ends = [_ttl_end(cluster.ttl, now)] if cluster.ttl is not None else []
    if cluster.block is not None:
        ends.append(datetime.fromisoformat(cluster.block.usable_until))
    return ends


def _refuse_after_block(cluster: ClusterSpec) -> None:
    """Raise SpecError for a requested expiry after the end of the block."""
    if cluster.block is None or cluster.expires is None:
        return
    limit = datetime.fromisoformat(cluster.block.usable_until)
    if datetime.fromisoformat(cluster.expires) > limit:
        raise SpecError(
            f"cluster.expires is {cluster.expires}; the nodes of the block are taken back from "
            f"{_written(limit)} on",
            remedy="leave cluster.expires out: the cluster then ends with the block",
        )


def _ttl_end(ttl: str, now: datetime) -> datetime:
    return now + timedelta(seconds=seconds_of(ttl))


def _sooner(cluster: ClusterSpec, before: str, cost: Cost, past: Cost, now: datetime) -> str:
    """Return the expiry of a cluster with a budget, which is earlier if the cluster became more expensive."""
    _refuse_unknown(cluster, cost)
    if past.unknown or not cost.known_usd > past.known_usd > 0:
        return before
    left = datetime.fromisoformat(before) - now
    return _written(now + left * (past.known_usd / cost.known_usd))


def _refuse_unknown(cluster: ClusterSpec, cost: Cost) -> None:
    """Raise SpecError for a budget with an unknown price."""
    if not cost.unknown:
        return
    raise SpecError(
        f"cluster.budget_usd is {cluster.budget_usd:g}; a budget needs all prices, and these are not known: "
        f"{cost.unknown_text}",
        remedy=_remedy(cost),
    )


def _remedy(cost: Cost) -> str:
    """Return the remedy for unknown prices, for which `up` has asked the cloud's price list already."""
    types = sorted({item.node_type for item in cost.unknown if item.node_type})
    if types and all(item.node_type for item in cost.unknown):
        return f"use --ttl instead of --budget, or leave {', '.join(types)} out"
    return "use --ttl instead of --budget"


def check_end(cluster: ClusterSpec, now: datetime) -> None:
    """Raise SpecError for a requested expiry that has passed, or is too early or too late."""
    if cluster.expires is None:
        return
    end = datetime.fromisoformat(cluster.expires)
    soonest, latest = now + MIN_TTL, now + MAX_TTL
    if not soonest <= end <= latest:
        raise SpecError(
            f"cluster.expires is {cluster.expires}; it must be between {_written(soonest)} (in five minutes) "
            f"and {_written(latest)} (in a year)",
            remedy="give a time within these bounds, or use --ttl instead of cluster.expires",
        )


def check_rate(cluster: ClusterSpec, cost: Cost) -> None:
    """Raise SpecError for a cluster that can cost more an hour than its limit, or an unknown amount."""
    limit = cluster.max_hourly_usd
    if limit is None:
        return
    if cost.unknown:
        raise SpecError(
            f"cluster.max_hourly_usd is {limit:g}; the limit needs all prices, and these are not known: "
            f"{cost.unknown_text}",
            remedy="leave --max-hourly out, or leave out what has no known price",
        )
    if cost.known_usd > limit:
        raise SpecError(
            f"the cluster can cost {cost.text} with its most expensive candidate; cluster.max_hourly_usd is "
            f"{limit:g}",
            remedy="use fewer nodes (--nodes), cheaper types (--instance-types) or --capacity spot, or raise "
            "--max-hourly",
        )


def kept_end(found: Sequence[Observed]) -> str:
    """Return the end that the cloud keeps, which the guard moves for a budget; empty for none."""
    return max((seen.tags.get(TAG_EXPIRES, "") for seen in found if seen.kind == END_SCHEDULE), default="")


def with_kept_end(cluster: ClusterSpec, found: Sequence[Observed]) -> ClusterSpec:
    """Return the journal's specification with the end that the cloud keeps, if the guard may have moved it.

    Args:
        cluster: the specification of the last `up`.
        found: the cluster's resources.
    """
    end = kept_end(found) if is_movable(cluster) else ""
    return cluster.model_copy(update={"expires": end}) if end else cluster


def tagged_end(found: Sequence[Observed], control_plane: str) -> str:
    """Return the expiry in a cluster's tags; empty if there is none.

    The end that the cloud keeps counts, since the guard moves it; then the control plane's tag, because a
    change of the expiry updates it; without one, the latest counts.
    """
    heads = [seen for seen in found if seen.kind == control_plane] or found
    return kept_end(found) or max((seen.tags.get(TAG_EXPIRES, "") for seen in heads), default="")


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def is_over(end: str | None, now: datetime) -> bool:
    """Return whether an expiry has passed; False for one that cannot be parsed."""
    try:
        return bool(end) and datetime.fromisoformat(end or "") <= now
    except (ValueError, TypeError):
        return False


def _limits(cluster: ClusterSpec) -> tuple[str | None, float | None, str | None]:
    block_end = cluster.block.usable_until if cluster.block is not None else None
    return (cluster.ttl, cluster.budget_usd, block_end)
