"""Blocks of capacity in `up`: the block that a cluster has, or the offer that it would buy.

An offer is a part of the plan, so that one question covers everything. The block is bought after that, before
anything that needs it is made, and is noted in the journal at once. No block is bought twice: the cloud is
asked first for one that was bought for the cluster.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from cloudrec.engine.journal import Missing
from cloudrec.engine.plan import Upfront
from cloudrec.errors import NoCapacityError, SpecError, UsageError
from cloudrec.providers.base.capacity.blocks import OffersBlocks, SellsBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.cost import Cost
    from cloudrec.providers.base.capacity.blocks import BlockOffer
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import BlockSpec, ClusterSpec

NODES = "GPU nodes"  # what a cluster lacks until its block begins
_HOUR_S = 3600.0


def block_offers(app: AppContext, cluster: ClusterSpec) -> Sequence[BlockOffer]:
    """Return the blocks of capacity that a provider has for the spec, the earliest first.

    Raises:
        UsageError: the provider has no blocks.
    """
    provider = app.provider(cluster.provider)
    if not isinstance(provider, OffersBlocks):
        raise UsageError(
            f"provider {provider.name!r} has no blocks of capacity",
            remedy="use --blocks with a cloud that sells nodes for a fixed time: aws or gcp",
        )
    return provider.block_offers(cluster)


def with_block(
    provider: Provider, cluster: ClusterSpec, *, most_usd: float | None
) -> tuple[ClusterSpec, BlockOffer | None]:
    """Return the spec with its block, and the offer if the block is not bought yet.

    Args:
        provider: the cluster's provider.
        cluster: the request.
        most_usd: the highest price of an offer, in USD; None for any.

    Raises:
        NoCapacityError: the cloud offers no such block, or none at this price.
    """
    cluster = cluster.model_copy(update={"block": None})
    if not isinstance(provider, SellsBlocks):
        return cluster, None
    found = provider.block_of(cluster)
    if found is not None:
        return _on(cluster, found), None
    if cluster.capacity != "block":
        return cluster, None
    offer = _chosen(cluster, provider.block_offers(cluster), most_usd)
    return _on(cluster, offer.block), offer


def _on(cluster: ClusterSpec, block: BlockSpec) -> ClusterSpec:
    """Return the spec for the block: its type and zone are the only ones."""
    return cluster.model_copy(
        update={"block": block, "zones": (block.zone,), "instance_types": (block.instance_type,)}
    )


def _chosen(cluster: ClusterSpec, offers: Sequence[BlockOffer], most_usd: float | None) -> BlockOffer:
    """Return the earliest offer within the price."""
    wanted = f"{cluster.nodes} nodes for {cluster.block_hours} hours"
    if not offers:
        types = f" ({', '.join(cluster.instance_types)})" if cluster.instance_types else ""
        raise NoCapacityError(
            f"no block of capacity with {wanted}{types} is offered",
            remedy="try another start (--start), length (--hours), type (--instance-types), number (--nodes) "
            "or region (--region)",
        )
    usd = [offer.block.upfront_usd for offer in offers]
    affordable = [
        offer
        for offer, price in zip(offers, usd, strict=True)
        if most_usd is None or (price is not None and price <= most_usd)
    ]
    if not affordable:
        known = [price for price in usd if price is not None]
        least = f"the cheapest costs ${min(known):,.2f}" if known else "no price is known"
        raise NoCapacityError(
            f"no block of capacity with {wanted} is offered for at most ${most_usd:,.2f}: {least}",
            remedy=f"raise --max-price, or try another start or length: `cloudrec catalog "
            f"{cluster.provider} --blocks --hours {cluster.block_hours} --nodes {cluster.nodes}` lists all",
        )
    return affordable[0]


def upfront_of(offer: BlockOffer | None) -> Upfront | None:
    """Return what a plan buys in advance; None for nothing."""
    if offer is None:
        return None
    block = offer.block
    what = (
        f"a block of {block.nodes} x {block.instance_type} in {block.zone} from {block.start} to {block.end}"
    )
    return Upfront(what=what, usd=block.upfront_usd)


def bought(provider: Provider, cluster: ClusterSpec, offer: BlockOffer) -> ClusterSpec:
    """Buy the offered block; return the spec with it."""
    if not isinstance(provider, SellsBlocks):
        raise TypeError(f"{provider.name} made an offer that it cannot sell")
    return _on(cluster, provider.buy_block(cluster, offer))


def check_block(cluster: ClusterSpec, cost: Cost, now: datetime) -> None:
    """Refuse an end before the block begins, and a budget that the block and the rest exceed.

    Args:
        cluster: the specification with its end.
        cost: the highest hourly cost of all but the block.
        now: the time.

    Raises:
        SpecError: the block cannot be used so.
    """
    block = cluster.block
    if block is None or cluster.expires is None:
        return
    end = datetime.fromisoformat(cluster.expires)
    if end <= datetime.fromisoformat(block.start):
        raise SpecError(
            f"the cluster ends at {cluster.expires}, before its block begins at {block.start}",
            remedy="a ttl counts from now: leave --ttl out, and the cluster ends with the block; or raise it",
        )
    if cluster.budget_usd is None:
        return
    if block.upfront_usd is None:
        raise SpecError(
            f"cluster.budget_usd is {cluster.budget_usd:g}; a budget needs all prices, and that of the block "
            f"{block.id or block.zone} is not known",
            remedy="leave --budget out: the cluster ends with the block",
        )
    rest = cost.known_usd * (end - now).total_seconds() / _HOUR_S
    needed = block.upfront_usd + rest
    if cluster.budget_usd < needed:
        raise SpecError(
            f"cluster.budget_usd is {cluster.budget_usd:g}; the block costs ${block.upfront_usd:,.2f} in "
            f"advance, and the rest of the cluster up to ${rest:,.2f} until {cluster.expires}",
            remedy=f"raise it to --budget {ceil(needed)}, or use a shorter block or fewer nodes",
        )


def lacks_nodes(cluster: ClusterSpec) -> tuple[Missing, ...]:
    """Return what a cluster lacks until its block begins; nothing if it has begun."""
    block = cluster.block
    if block is None or block.is_active:
        return ()
    return (
        Missing(
            what=NODES,
            reason=f"the block {block.id} begins at {block.start}",
            remedy=f"run the same `cloudrec up {cluster.provider}` again after that: it waits for the nodes",
        ),
    )
