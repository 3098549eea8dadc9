"""The GPU nodes that can be had: their hardware, and which are tried in which order."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.provider import Offer
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.prices import Prices
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("p4d.24xlarge",)
ON_DEMAND, SPOT, BLOCK = "on-demand", "spot", "capacity-block"
# The markets in the order in which they are tried, by the spec's `capacity`.
MARKETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"on-demand": (ON_DEMAND,), "spot": (SPOT,), "spot-first": (SPOT, ON_DEMAND)}
)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One instance type.

    Attributes:
        instance_type: its name.
        gpu: the GPU's model.
        gpus: GPUs on it.
        gpu_memory_gib: memory of each.
        vcpus: virtual cores.
        memory_gib: main memory.
        efa: network cards with an Elastic Fabric Adapter, numbered from 0.
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
    efa: int = 0
    nvme_gb: int = 0
    nvlink_gb_s: int = 0
    network_gbit_s: float = 0.0


def _known(*hardware: Hardware) -> Mapping[str, Hardware]:
    return MappingProxyType({each.instance_type: each for each in hardware})


KNOWN = _known(
    Hardware(
        instance_type="p4d.24xlarge",
        gpu="A100",
        gpus=8,
        gpu_memory_gib=40,
        vcpus=96,
        memory_gib=1152,
        efa=4,
        nvme_gb=8000,
        nvlink_gb_s=600,
        network_gbit_s=400,
    ),
    Hardware(
        instance_type="p4de.24xlarge",
        gpu="A100",
        gpus=8,
        gpu_memory_gib=80,
        vcpus=96,
        memory_gib=1152,
        efa=4,
        nvme_gb=8000,
        nvlink_gb_s=600,
        network_gbit_s=400,
    ),
    Hardware(
        instance_type="p5.48xlarge",
        gpu="H100",
        gpus=8,
        gpu_memory_gib=80,
        vcpus=192,
        memory_gib=2048,
        efa=32,
        nvme_gb=30400,
        nvlink_gb_s=900,
        network_gbit_s=3200,
    ),
    Hardware(
        instance_type="p5en.48xlarge",
        gpu="H200",
        gpus=8,
        gpu_memory_gib=141,
        vcpus=192,
        memory_gib=2048,
        efa=16,
        nvme_gb=30400,
        nvlink_gb_s=900,
        network_gbit_s=3200,
    ),
    Hardware(
        instance_type="g5.xlarge",
        gpu="A10G",
        gpus=1,
        gpu_memory_gib=24,
        vcpus=4,
        memory_gib=16,
        nvme_gb=250,
        network_gbit_s=2.5,
    ),
    Hardware(
        instance_type="g6.xlarge",
        gpu="L4",
        gpus=1,
        gpu_memory_gib=24,
        vcpus=4,
        memory_gib=16,
        nvme_gb=250,
        network_gbit_s=2.5,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One way of having the GPU nodes: a type, in a zone, paid for in one way."""

    instance_type: str
    zone: str
    market: str


def places(
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


def hardware_of(instance_types: Sequence[str], aws: Aws) -> dict[str, Hardware]:
    """Return each type's hardware, asking the cloud for those that the table does not have.

    Raises:
        SpecError: a type does not exist, or has no GPU.
    """
    found = {name: KNOWN[name] for name in instance_types if name in KNOWN}
    unknown = sorted(set(instance_types) - set(found))
    if unknown:
        rows = aws.read(
            "ec2",
            "describe_instance_types",
            key="InstanceTypes",
            Filters=[{"Name": "instance-type", "Values": unknown}],  # what is missing is no error then
        )
        found |= {row["InstanceType"]: described(row) for row in rows}
    for name in instance_types:
        if name not in found:
            raise SpecError(
                f"instance type {name!r} is not in {aws.region}", remedy=did_you_mean(name, sorted(KNOWN))
            )
        if not found[name].gpus:
            raise SpecError(
                f"instance type {name!r} has no GPU of NVIDIA", remedy=f"choose one of {', '.join(KNOWN)}"
            )
    return found


def described(row: Mapping[str, Any]) -> Hardware:
    """Read a row of `describe_instance_types`."""
    gpus = [gpu for gpu in row.get("GpuInfo", {}).get("Gpus", ()) if gpu["Manufacturer"] == "NVIDIA"]
    network = row["NetworkInfo"]
    cards = network.get("NetworkCards", ())
    return Hardware(
        instance_type=row["InstanceType"],
        gpu=gpus[0]["Name"] if gpus else "",
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_memory_gib=round(gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024) if gpus else 0,
        vcpus=row["VCpuInfo"]["DefaultVCpus"],
        memory_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        nvme_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        network_gbit_s=sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards),
    )


def offers(
    ways: Sequence[Place],
    hardware: Mapping[str, Hardware],
    prices: Prices,
    spot: Mapping[tuple[str, str], float],
) -> list[Offer]:
    """Describe each way of having the nodes, with its price where one is known."""
    return [_offer(way, hardware[way.instance_type], prices, spot) for way in ways]


def catalog(
    hardware: Mapping[str, Hardware],
    zones_of: Mapping[str, Sequence[str]],
    prices: Prices,
    spot: Mapping[tuple[str, str], float],
) -> list[Offer]:
    """Describe each type on demand, and as spot in each zone that has it, the cheapest zone first."""
    listed: list[Offer] = []
    for name, zones in zones_of.items():
        anywhere = Place(instance_type=name, zone=f"{len(zones)} zones", market=ON_DEMAND)
        listed.append(_offer(anywhere, hardware[name], prices, spot))
        ways = [Place(instance_type=name, zone=zone, market=SPOT) for zone in zones if (name, zone) in spot]
        ways.sort(key=lambda way: spot[way.instance_type, way.zone])
        listed += [_offer(way, hardware[name], prices, spot) for way in ways]
    return listed


def _offer(way: Place, hardware: Hardware, prices: Prices, spot: Mapping[tuple[str, str], float]) -> Offer:
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
        priced="spot market, now" if is_spot else prices.label,
    )


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the instance types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES
