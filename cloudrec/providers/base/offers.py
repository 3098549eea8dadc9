"""The available GPU nodes: their hardware, prices, and the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.providers.base import protocol
from cloudrec.providers.base.protocol import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.base.prices import Prices

ON_DEMAND, SPOT = protocol.ON_DEMAND, protocol.SPOT
# The capacity types in the order in which they are tried, by the spec's `capacity`.
CAPACITY_TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"on-demand": (ON_DEMAND,), "spot": (SPOT,), "spot-first": (SPOT, ON_DEMAND)}
)


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
        network_gbit_s: bandwidth between two such nodes, in Gbit/s.
    """

    instance_type: str
    gpu: str
    gpus: int
    gpu_memory_gib: int
    vcpus: int
    memory_gib: float
    nvme_gb: int = 0
    nvlink_gb_s: int = 0
    network_gbit_s: float = 0.0


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
    hardware: Mapping[str, InstanceType], zones_of: Mapping[str, Sequence[str]], prices: Prices
) -> list[Offer]:
    """Return an on-demand offer for each type, then its spot offers by zone, the cheapest zone first."""
    listed: list[Offer] = []
    for name, zones in zones_of.items():
        anywhere = Placement(instance_type=name, zone=f"{len(zones)} zones", capacity=ON_DEMAND)
        listed.append(_offer(anywhere, hardware[name], prices))
        spot = {zone: price for zone in zones if (price := prices.price(name, SPOT, zone)) is not None}
        for zone in sorted(spot, key=lambda zone: spot[zone].usd):
            way = Placement(instance_type=name, zone=zone, capacity=SPOT)
            listed.append(_offer(way, hardware[name], prices))
    return listed


def _offer(way: Placement, hardware: InstanceType, prices: Prices) -> Offer:
    sold_as = SPOT if way.capacity == SPOT else ON_DEMAND
    price = prices.price(way.instance_type, sold_as, way.zone)
    return Offer(
        instance_type=way.instance_type,
        location=way.zone,
        capacity=way.capacity,
        vcpus=hardware.vcpus,
        memory_gib=hardware.memory_gib,
        gpu=hardware.gpu,
        gpus=hardware.gpus,
        hourly_usd=price.hourly_usd if price is not None else None,
        priced=price.label if price is not None else f"no price of {prices.region} is known",
    )
