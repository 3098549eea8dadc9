"""Blocks of capacity: nodes for a fixed time, which are paid for in advance and cannot be given back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cloudrec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.spec.models import BlockSpec, ClusterSpec


@dataclass(frozen=True, kw_only=True)
class BlockOffer:
    """A block that the cloud sells now.

    Attributes:
        identity: the cloud's id of the offer; empty if the cloud has none.
        block: the block as it would be.
    """

    identity: str
    block: BlockSpec


@runtime_checkable
class OffersBlocks(Protocol):
    """A provider whose cloud says when it has nodes for a fixed time."""

    def block_offers(self, cluster: ClusterSpec) -> Sequence[BlockOffer]:
        """Return the blocks that fit the spec (types, zones, nodes, hours, start), the earliest first.

        Raises:
            SpecError: the cloud sells no block of this type, number or length.
        """
        ...


@runtime_checkable
class SellsBlocks(OffersBlocks, Protocol):
    """A provider whose cloud sells blocks by a call."""

    def block_of(self, cluster: ClusterSpec) -> BlockSpec | None:
        """Return the block that the settings name, or that was bought for the cluster and has not ended.

        Raises:
            PreflightError: the block that the settings name does not exist or has ended.
        """
        ...

    def buy_block(self, cluster: ClusterSpec, offer: BlockOffer) -> BlockSpec:
        """Buy a block, with a mark by which `block_of` finds it.

        The call is made once. If its response is lost, `block_of` finds the block, perhaps some time later.

        Raises:
            NoCapacityError: the cloud no longer has this offer.
        """
        ...


def hours_of(cluster: ClusterSpec) -> int:
    """Return the requested length of a block; SpecError if the spec has none."""
    if cluster.block_hours is None:
        raise SpecError(
            "cluster.block_hours is not set: a block of capacity has a fixed length",
            remedy="give it in hours, such as --hours 48",
        )
    return cluster.block_hours


def is_wanted(offer: BlockOffer, cluster: ClusterSpec) -> bool:
    """Return whether an offer is in a requested zone and does not begin too early."""
    block = offer.block
    if cluster.zones and block.zone not in cluster.zones:
        return False
    if cluster.block_start is None:
        return True
    return datetime.fromisoformat(block.start) >= datetime.fromisoformat(cluster.block_start)


def in_order(offers: Sequence[BlockOffer]) -> list[BlockOffer]:
    """Return offers by start, then by price; an unknown price is the last."""
    return sorted(
        offers,
        key=lambda offer: (
            datetime.fromisoformat(offer.block.start),
            offer.block.upfront_usd is None,
            offer.block.upfront_usd or 0.0,
        ),
    )
