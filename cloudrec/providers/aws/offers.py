"""The GPU nodes that AWS has, and their hardware."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import Machine
from cloudrec.errors import SpecError
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.aws.client import Aws
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("p4d.24xlarge",)
BLOCK = "capacity-block"  # a market beside those of every cloud


@dataclass(frozen=True, kw_only=True)
class Hardware(Machine):
    """One instance type.

    Attributes:
        efa: network cards with an Elastic Fabric Adapter, numbered from 0.
    """

    efa: int = 0


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


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the instance types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES
