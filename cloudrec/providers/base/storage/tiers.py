"""The places from which a node can read a dataset, and the choice between them.

Three tiers: the disks of the node itself, to which the dataset is copied before the ranks start; a Lustre
file system, which all nodes share; and the bucket, mounted with a cache on the node's disks. `choose` is a
pure function of their sizes and rates. What is not known stays unknown: it is neither 0 nor enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.base.storage.rates import RateRow

AUTO = "auto"
LOCAL, LUSTRE, BUCKET = TIERS = ("local", "lustre", "bucket")
GIB = 1.073741824  # in GB
# The share of a disk that the kubelet keeps free: its default for nodefs.available is 10%.
KUBELET_SHARE = 0.9
_WHOLE = 100.0  # from here on, a size has no decimals
OWN_GIB = 16  # of a pod's own files on its node's disk: packages, logs, checkpoints that are being written
MARGIN = 1.05  # times the dataset's size must be free; file systems need some space themselves


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One place for a dataset, as it is for each node.

    Attributes:
        name: local, lustre or bucket.
        title: what it is, for people.
        room_gb: GB that a dataset may have there; infinite for a bucket, None if it is not known.
        read_gb_s: GB/s that one node reads from it; None if it is not known.
        basis: whose number the rate is, and its date; empty for an unknown one.
        source: where the rate is from; empty for an unknown one.
        lacks: why the cluster does not have it; empty if it does.
        remedy: how the cluster gets it, or more of it.
    """

    name: str
    title: str
    room_gb: float | None
    read_gb_s: float | None = None
    basis: str = ""
    source: str = ""
    lacks: str = ""
    remedy: str = ""

    def holds(self, size_gb: float) -> bool:
        """Return whether there is room; False if the room is not known."""
        return self.room_gb is not None and size_gb * MARGIN <= self.room_gb

    @property
    def rate_text(self) -> str:
        """The rate with its basis."""
        if self.read_gb_s is None:
            return "GB/s unknown"
        return f"{self.read_gb_s:.3g} GB/s a node ({self.basis})"

    @property
    def room_text(self) -> str:
        """The room with its unit."""
        if self.room_gb is None:
            return "unknown room"
        return "no limit" if math.isinf(self.room_gb) else size_text(self.room_gb)


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """The tier of a dataset.

    Attributes:
        tier: where the nodes read it.
        size_gb: its size; None if it is not known.
    """

    tier: Tier
    size_gb: float | None

    @property
    def line(self) -> str:
        """The choice in one line of at most 69 characters."""
        size = "size unknown" if self.size_gb is None else size_text(self.size_gb)
        return f"{size} on {self.tier.title}, {self.tier.rate_text}"


def size_text(size_gb: float) -> str:
    """Format a size in GB, or in MB if it is smaller than one."""
    amount, unit = (size_gb, "GB") if size_gb >= 1 else (size_gb * 1e3, "MB")
    return f"{amount:,.0f} {unit}" if amount >= _WHOLE else f"{amount:.3g} {unit}"


def choose(size_gb: float | None, tiers: Sequence[Tier], *, wanted: str = AUTO) -> DataChoice:
    """Return the tier for a dataset.

    The node's own disks come first if they have room, then Lustre, then the bucket. Lustre comes before the
    disks if both rates are known and Lustre's is higher. A tier of unknown room is used only if no other has
    room.

    Args:
        size_gb: the dataset's size; None if it is not known.
        tiers: local, lustre and bucket of the cluster, in this order.
        wanted: the name of the tier that must be used, or auto.

    Raises:
        PreflightError: no tier has room for it, or not the wanted one.
        UsageError: there is no tier of the wanted name.
    """
    if wanted != AUTO:
        tiers = [tier for tier in tiers if tier.name == wanted]
        if not tiers:
            raise UsageError(f"there is no data tier {wanted!r}", remedy=f"use {', '.join((AUTO, *TIERS))}")
    there = [tier for tier in tiers if not tier.lacks]
    if size_gb is None:
        found = there
    else:
        found = [tier for tier in there if tier.holds(size_gb)] or [
            tier for tier in there if tier.room_gb is None
        ]
    if not found:
        raise _no_room(size_gb, tiers)
    best, others = found[0], [tier for tier in found[1:] if tier.name != BUCKET]
    if size_gb is not None:
        for tier in others:
            if best.read_gb_s is not None and (tier.read_gb_s or 0.0) > best.read_gb_s:
                best = tier
    return DataChoice(tier=best, size_gb=size_gb)


def least(tiers: Sequence[Tier]) -> Tier:
    """Return one tier of several machines as it is on whichever of them is taken: the least room and rate."""
    rooms, slowest = [tier.room_gb for tier in tiers], min(tiers, key=lambda tier: tier.read_gb_s or 0.0)
    known = [room for room in rooms if room is not None]
    narrow = min(tiers, key=lambda tier: tier.room_gb or 0.0)
    return replace(
        narrow,
        room_gb=min(known) if len(known) == len(rooms) else None,
        read_gb_s=slowest.read_gb_s,
        basis=slowest.basis,
        source=slowest.source,
    )


def local(*, title: str, room_gb: float | None, rate: RateRow | None, remedy: str) -> Tier:
    """Return the tier of the node's own disks, without the room that a pod's other files need."""
    room = max(0.0, room_gb - OWN_GIB * GIB) if room_gb is not None else None
    return _rated(Tier(name=LOCAL, title=title, room_gb=room, remedy=remedy), rate)


def lustre(
    *, capacity_gib: float, mb_s_each_tib: float, nodes: int, client: RateRow | None, remedy: str
) -> Tier:
    """Return the tier of a Lustre file system.

    Args:
        capacity_gib: its size; 0 for none.
        mb_s_each_tib: its throughput for each TiB.
        nodes: the nodes that share it.
        client: the most that one node reads; None if it is not known.
        remedy: how the cluster gets one.
    """
    if not capacity_gib:
        lacks = "the cluster has no Lustre file system"
        return Tier(name=LUSTRE, title="Lustre", room_gb=0.0, lacks=lacks, remedy=remedy)
    share = mb_s_each_tib / 1e3 * capacity_gib / 1024 / max(nodes, 1)
    if client is not None and client.read_gb_s is not None and client.read_gb_s < share:
        tier = Tier(name=LUSTRE, title="Lustre", room_gb=capacity_gib * GIB, remedy=remedy)
        return _rated(tier, client)
    source = f"{mb_s_each_tib:g} MB/s for each TiB of {capacity_gib:,.0f} GiB, shared by {nodes} nodes"
    return Tier(
        name=LUSTRE,
        title="Lustre",
        room_gb=capacity_gib * GIB,
        read_gb_s=share,
        basis=f"{mb_s_each_tib:g} MB/s a TiB",
        source=source,
        remedy=remedy,
    )


def bucket(*, client: RateRow | None) -> Tier:
    """Return the tier of the cluster's bucket, mounted with a cache."""
    return _rated(Tier(name=BUCKET, title="the bucket, cached", room_gb=math.inf), client)


def _rated(tier: Tier, rate: RateRow | None) -> Tier:
    if rate is None or rate.read_gb_s is None:
        return tier
    return replace(tier, read_gb_s=rate.read_gb_s, basis=rate.label, source=rate.source)


def _no_room(size_gb: float | None, tiers: Sequence[Tier]) -> PreflightError:
    size = "a dataset of unknown size" if size_gb is None else f"the dataset of {size_text(size_gb)}"
    limits = "; ".join(
        f"{tier.title}: {tier.lacks}" if tier.lacks else f"{tier.title}: {tier.room_text}" for tier in tiers
    )
    remedies = "; or ".join(dict.fromkeys(tier.remedy for tier in tiers if tier.remedy))
    return PreflightError(
        f"there is no room on the nodes for {size}, which needs {MARGIN:.0%} of its size: {limits}",
        remedy=remedies or "use a smaller dataset",
    )
