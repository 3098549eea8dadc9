"""The tiers of Azure Managed Lustre: their capacities, and how many addresses a file system needs."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network

from cloudrec_sandbox.azure.services.network.addresses import RESERVED


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A SKU; the capacity is a multiple of `step_tib`, from one step on."""

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
# Together these make the table of sizes and prefixes in Azure's prerequisites.
_LEAST, _OWN, _PER_TIB = 26, 7, 1.24


def addresses(tib: float) -> int:
    """Return how many addresses a file system takes."""
    return max(_LEAST, _OWN + int(_PER_TIB * tib))


def prefix_length(tib: float) -> int:
    """Return the prefix length of the smallest subnet that a file system fits in."""
    wanted = addresses(tib) + RESERVED
    return max(length for length in range(16, 28) if IPv4Network((0, length)).num_addresses >= wanted)
