"""The tiers of Azure Managed Lustre: what they take, and how much of a subnet they need."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A SKU; capacity comes in steps of `step_tib`, from one step on."""

    name: str
    mbps_per_tib: int
    step_tib: int
    most_tib: int


TIERS: dict[str, Tier] = {
    tier.name.lower(): tier
    for tier in (
        Tier(name="AMLFS-Durable-Premium-40", mbps_per_tib=40, step_tib=48, most_tib=1536),
        Tier(name="AMLFS-Durable-Premium-125", mbps_per_tib=125, step_tib=16, most_tib=512),
        Tier(name="AMLFS-Durable-Premium-250", mbps_per_tib=250, step_tib=8, most_tib=256),
        Tier(name="AMLFS-Durable-Premium-500", mbps_per_tib=500, step_tib=4, most_tib=128),
    )
}
_OWN = 11  # addresses of a file system beside those of its storage servers


def addresses(tier: Tier, tib: float) -> int:
    """How many addresses a file system takes."""
    return _OWN + int(tib // tier.step_tib)


def prefix_length(tier: Tier, tib: float) -> int:
    """The length of the smallest subnet's prefix that a file system fits in."""
    wanted = addresses(tier, tib) + 5
    return max(length for length in range(16, 28) if IPv4Network((0, length)).num_addresses >= wanted)
