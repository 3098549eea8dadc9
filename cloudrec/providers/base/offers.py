"""The available GPU nodes: their hardware, prices, and the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base import protocol
from cloudrec.providers.base.protocol import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.base.prices import Prices
    from cloudrec.spec.models import ClusterSpec

ON_DEMAND, SPOT, BLOCK, FLEX = protocol.ON_DEMAND, protocol.SPOT, protocol.BLOCK, protocol.FLEX
X86 = "x86_64"  # the architecture that the trainer's images are for
# The capacity types in the order in which they are tried, by the spec's `capacity`.
CAPACITY_TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "on-demand": (ON_DEMAND,),
        "spot": (SPOT,),
        "spot-first": (SPOT, ON_DEMAND),
        "block": (BLOCK,),
        "flex-start": (FLEX,),
    }
)
USUAL = ("on-demand", "spot", "spot-first")  # the values of the spec's `capacity` that every cloud has


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """The hardware of one instance type.

    Attributes:
        instance_type: its name.
        gpu: the GPU's model.
        gpus: its number of GPUs.
        gpu_memory_gib: memory of each GPU, in GiB.
        vcpus: virtual cores.
        memory_gib: main memory, in GiB.
        nvme_gb: size of all local disks, in GB.
        nvlink_gb_s: bandwidth between two of its GPUs, in GB/s; 0 without NVLink.
        nvlink_domain: number of GPUs that NVLink joins, also those of several nodes; 0 without NVLink.
        network_gbit_s: bandwidth between two such nodes, in Gbit/s.
        architecture: the instruction set of its CPUs.
        cards: network cards of its fabric; 0 without one.
        hugepages_2mi_mib: huge pages of 2 MiB that a pod can request, in MiB; 0 for none.
        profile: the name of its transport profile; empty if none is known.
    """

    instance_type: str
    gpu: str
    gpus: int
    gpu_memory_gib: int
    vcpus: int
    memory_gib: float
    nvme_gb: int = 0
    nvlink_gb_s: int = 0
    nvlink_domain: int = 0
    network_gbit_s: float = 0.0
    architecture: str = X86
    cards: int = 0
    hugepages_2mi_mib: int = 0
    profile: str = ""

    @property
    def fabric(self) -> str:
        """The network fabric between GPUs of different nodes; tcp if there is none."""
        return "tcp"

    @property
    def bandwidths(self) -> dict[str, str]:
        """The variables that state a GPU's bandwidths to the trainer's planner, in bytes a second.

        They are the hardware's, as vendors and the planner of TorchRec state them: NVLink in both directions,
        and the GPU's share of its node's network. A GPU without NVLink, or a node of an unknown network, has
        none.
        """
        found = {
            "INTRA_NODE_BANDWIDTH": self.nvlink_gb_s * 10**9,
            "CROSS_NODE_BANDWIDTH": self.network_gbit_s * 10**9 / 8 / max(self.gpus, 1),
        }
        return {name: f"{bytes_s:.0f}" for name, bytes_s in found.items() if bytes_s}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One way to get the GPU nodes: an instance type, a zone and a capacity type."""

    instance_type: str
    zone: str
    capacity: str


def all_ways(
    types: Sequence[str],
    zones: Sequence[str],
    capacity_types: Sequence[str],
    offered: Mapping[str, Sequence[str]],
) -> list[Placement]:
    """Return the ways to get GPU nodes, the best first: by capacity type, then instance type, then zone.

    Args:
        types: instance types, the best first.
        zones: zones, the best first.
        capacity_types: the allowed capacity types, the best first.
        offered: instance type -> zones that have it; a type without an entry is taken to be in all zones.
    """
    return [
        Placement(instance_type=name, zone=zone, capacity=capacity)
        for capacity in capacity_types
        for name in types
        for zone in zones
        if zone in offered.get(name, zones)
    ]


def offers(places: Sequence[Placement], hardware: Mapping[str, InstanceType], prices: Prices) -> list[Offer]:
    """Return an offer for each placement, with its price if it is known.

    Args:
        places: the placements.
        hardware: instance type -> its hardware.
        prices: the price table.
    """
    return [_offer(way, hardware[way.instance_type], prices) for way in places]


def catalog(
    hardware: Mapping[str, InstanceType],
    zones_of: Mapping[str, Sequence[str]],
    prices: Prices,
    *,
    named: Sequence[str] = (),
) -> list[Offer]:
    """Return an on-demand offer for each type, then its spot offers by zone, the cheapest zone first.

    Args:
        hardware: instance type -> its hardware.
        zones_of: instance type -> the zones of the region that have it.
        prices: the price table.
        named: the types that are listed even if no zone has them.
    """
    listed: list[Offer] = []
    for name, zones in zones_of.items():
        if not zones and name not in named:
            continue
        anywhere = Placement(instance_type=name, zone=f"{len(zones)} zones", capacity=ON_DEMAND)
        listed.append(_offer(anywhere, hardware[name], prices))
        spot = {zone: price for zone in zones if (price := prices.price(name, SPOT, zone)) is not None}
        for zone in sorted(spot, key=lambda zone: spot[zone].usd):
            way = Placement(instance_type=name, zone=zone, capacity=SPOT)
            listed.append(_offer(way, hardware[name], prices))
    return listed


def check_capacity(cluster: ClusterSpec, sold: Sequence[str] = USUAL, *, instead: str = "") -> None:
    """Raise SpecError for a capacity type that the provider does not have, or for settings of another one.

    Args:
        cluster: the spec.
        sold: the provider's values of `capacity`.
        instead: how the provider has the same; empty if it does not.
    """
    if cluster.capacity not in sold:
        raise SpecError(
            f"cluster.capacity is {cluster.capacity}; {cluster.provider} has {', '.join(sold)}",
            remedy=instead or f"choose one of them (--capacity {sold[0]})",
        )
    given = [name for name in ("block_hours", "block_start") if getattr(cluster, name) is not None]
    if given and cluster.capacity != "block":
        raise SpecError(
            f"cluster.{given[0]} is set, but cluster.capacity is {cluster.capacity}",
            remedy="leave it out, or use --capacity block where the cloud has it",
        )


def _offer(way: Placement, hardware: InstanceType, prices: Prices) -> Offer:
    sold_as = way.capacity if way.capacity in (SPOT, BLOCK) else ON_DEMAND
    price = prices.price(way.instance_type, sold_as, way.zone)
    if way.capacity == BLOCK:
        unknown = "paid in advance: `cloudrec catalog --blocks` has the offers"
    else:
        unknown = f"no price of {prices.region} is known"
    return Offer(
        instance_type=way.instance_type,
        location=way.zone,
        capacity=way.capacity,
        vcpus=hardware.vcpus,
        memory_gib=hardware.memory_gib,
        gpu=hardware.gpu,
        gpus=hardware.gpus,
        hourly_usd=price.hourly_usd if price is not None else None,
        priced=price.label if price is not None else unknown,
    )
