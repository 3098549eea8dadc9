"""The GPU nodes that can be had: their hardware, which are tried in which order, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.provider import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.cloud.prices import Prices

ON_DEMAND, SPOT = "on-demand", "spot"
SPOT_NOW = "spot market, now"  # where a spot price is from that was asked for just now
# The markets in the order in which they are tried, by the spec's `capacity`.
MARKETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"on-demand": (ON_DEMAND,), "spot": (SPOT,), "spot-first": (SPOT, ON_DEMAND)}
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One instance type, as far as every cloud tells of it.

    Attributes:
        instance_type: its name.
        gpu: the GPU's model.
        gpus: GPUs on it.
        gpu_memory_gib: memory of each.
        vcpus: virtual cores.
        memory_gib: main memory.
        nvme_gb: local disks in all.
        nvlink_gb_s: between two of its GPUs; 0 without NVLink.
        network_gbit_s: between two such nodes.
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
class Place:
    """One way of having the GPU nodes: a type, in a zone, paid for in one way."""

    instance_type: str
    zone: str
    market: str


def all_ways(
    types: Sequence[str], zones: Sequence[str], markets: Sequence[str], offered: Mapping[str, Sequence[str]]
) -> list[Place]:
    """Return the ways of having GPU nodes, the best first: by market, then type, then zone.

    Args:
        types: instance types, the best first.
        zones: zones, the best first.
        markets: how they may be paid for, the best first.
        offered: type -> zones that have it at all; a type that is not named is taken to be everywhere.
    """
    return [
        Place(instance_type=name, zone=zone, market=market)
        for market in markets
        for name in types
        for zone in zones
        if zone in offered.get(name, zones)
    ]


def offers(
    places: Sequence[Place],
    hardware: Mapping[str, Machine],
    prices: Prices,
    spot: Mapping[tuple[str, str], float],
    *,
    spot_priced: str = SPOT_NOW,
) -> list[Offer]:
    """Describe each way of having the nodes, with its price where one is known.

    Args:
        places: the ways.
        hardware: of each type.
        prices: what nodes cost on demand.
        spot: what they cost as spot, by type and zone.
        spot_priced: date and source of the spot prices.
    """
    return [_offer(way, hardware[way.instance_type], prices, spot, spot_priced) for way in places]


def catalog(
    hardware: Mapping[str, Machine],
    zones_of: Mapping[str, Sequence[str]],
    prices: Prices,
    spot: Mapping[tuple[str, str], float],
    *,
    spot_priced: str = SPOT_NOW,
) -> list[Offer]:
    """Describe each type on demand, and as spot in each zone that has it, the cheapest zone first."""
    listed: list[Offer] = []
    for name, zones in zones_of.items():
        anywhere = Place(instance_type=name, zone=f"{len(zones)} zones", market=ON_DEMAND)
        listed.append(_offer(anywhere, hardware[name], prices, spot, spot_priced))
        ways = [Place(instance_type=name, zone=zone, market=SPOT) for zone in zones if (name, zone) in spot]
        ways.sort(key=lambda way: spot[way.instance_type, way.zone])
        listed += [_offer(way, hardware[name], prices, spot, spot_priced) for way in ways]
    return listed


def _offer(
    way: Place, hardware: Machine, prices: Prices, spot: Mapping[tuple[str, str], float], spot_priced: str
) -> Offer:
    is_spot = way.market == SPOT
    return Offer(
        instance_type=way.instance_type,
        location=way.zone,
        capacity=way.market,
        vcpus=hardware.vcpus,
        memory_gib=hardware.memory_gib,
        gpu=hardware.gpu,
        gpus=hardware.gpus,
        hourly_usd=spot.get((way.instance_type, way.zone)) if is_spot else prices.node(way.instance_type),
        priced=spot_priced if is_spot else prices.label,
    )
