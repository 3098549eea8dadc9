"""The GPU node types of AWS, and their hardware."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base.offers import InstanceType
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.type_defs import InstanceTypeInfoTypeDef

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("p4d.24xlarge",)
X86 = "x86_64"
BLOCK = "capacity-block"  # a capacity type that only AWS has


@dataclass(frozen=True, kw_only=True)
class AwsInstanceType(InstanceType):
    """The hardware of an instance type.

    Attributes:
        efa: number of network cards with an Elastic Fabric Adapter (EFA).
        first_card: the first of these cards.
        architecture: the instruction set of its CPUs.
    """

    efa: int = 0
    first_card: int = 0
    architecture: str = X86

    @property
    def efa_cards(self) -> tuple[int, ...]:
        """The network cards with an EFA."""
        return tuple(range(self.first_card, self.first_card + self.efa))


def _known(*hardware: AwsInstanceType) -> Mapping[str, AwsInstanceType]:
    return MappingProxyType({each.instance_type: each for each in hardware})


KNOWN = _known(
    AwsInstanceType(
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
    AwsInstanceType(
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
    AwsInstanceType(
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
    AwsInstanceType(
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
    AwsInstanceType(
        instance_type="g5.xlarge",
        gpu="A10G",
        gpus=1,
        gpu_memory_gib=24,
        vcpus=4,
        memory_gib=16,
        nvme_gb=250,
        network_gbit_s=2.5,
    ),
    AwsInstanceType(
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


def hardware_of(instance_types: Sequence[str], aws: Aws) -> dict[str, AwsInstanceType]:
    """Return the hardware of each type; types that the table does not have are read from EC2.

    Raises:
        SpecError: a type is not in the region, or has no NVIDIA GPU.
    """
    found = {name: KNOWN[name] for name in instance_types if name in KNOWN}
    unknown = sorted(set(instance_types) - set(found))
    if unknown:
        rows = aws.rows(
            aws.ec2.get_paginator("describe_instance_types").paginate,
            lambda page: page.get("InstanceTypes"),
            # A filter leaves out a type that does not exist; the parameter InstanceTypes would fail.
            Filters=[{"Name": "instance-type", "Values": unknown}],
        )
        found |= {row["InstanceType"]: described(row) for row in rows}
    for name in instance_types:
        if name not in found:
            raise SpecError(
                f"instance type {name!r} is not in {aws.region}", remedy=did_you_mean(name, sorted(KNOWN))
            )
        if not found[name].gpus:
            raise SpecError(
                f"instance type {name!r} has no NVIDIA GPU", remedy=f"choose one of {', '.join(KNOWN)}"
            )
        if found[name].architecture != X86:
            raise SpecError(
                f"instance type {name!r} is {found[name].architecture}; the trainer's images are for {X86}",
                remedy=f"choose one of {', '.join(KNOWN)}",
            )
    return found


def described(row: InstanceTypeInfoTypeDef) -> AwsInstanceType:
    """Return the hardware in a row of `describe_instance_types`."""
    # The trainer's images need CUDA: GPUs of AMD, which EC2 lists too, do not count.
    gpus = [gpu for gpu in row.get("GpuInfo", {}).get("Gpus", ()) if gpu["Manufacturer"] == "NVIDIA"]
    network = row["NetworkInfo"]
    cards = network.get("NetworkCards", ())
    with_efa = [card["NetworkCardIndex"] for card in cards if "efa-only" in card.get("InterfaceTypes", ())]
    architectures = row.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    return AwsInstanceType(
        instance_type=row["InstanceType"],
        gpu=gpus[0]["Name"] if gpus else "",
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_memory_gib=round(gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024) if gpus else 0,
        vcpus=row["VCpuInfo"]["DefaultVCpus"],
        memory_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        # p6-b300's card 0 has none.
        first_card=min(with_efa, default=0),
        architecture=X86 if X86 in architectures or not architectures else architectures[0],
        nvme_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        network_gbit_s=sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards),
    )


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the instance types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES
