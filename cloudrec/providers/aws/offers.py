"""The GPU node types of AWS, and their hardware."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from cloudrec.errors import SpecError
from cloudrec.providers.base import protocol
from cloudrec.providers.base.hardware import machines
from cloudrec.providers.base.hardware.machines import MachineRow
from cloudrec.providers.base.offers import X86, InstanceType
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.type_defs import InstanceTypeInfoTypeDef, NetworkInfoTypeDef
    from types_boto3_eks.literals import AMITypesType

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("p4d.24xlarge",)
IMAGE: AMITypesType = "AL2023_x86_64_NVIDIA"  # EKS's type of image for GPU nodes that the table does not have
BLOCK = protocol.BLOCK  # nodes of a Capacity Block for ML
_NOUN = "instance type"
# What a pod may ask for in MiB: the example of "Run machine learning training on Amazon EKS with EFA" in the
# user guide of EKS, and no more than EFA's installer reserves: 110 MiB for each CPU, the packet pools of one
# endpoint (the configuration check of awslabs/libfabric-ci-scripts).
_HUGEPAGES, _HUGEPAGES_OF_CPU = 5120, 110
# EC2's name of a GPU -> the name that the clouds share.
_MODELS: Mapping[str, str] = MappingProxyType({"RTX PRO Server 6000": "RTX PRO 6000"})
_WHOLE = re.compile(r"(?:(?P<count>\d+)x )?(?P<gbit_s>[\d.]+) Gigabit")


@dataclass(frozen=True, kw_only=True)
class AwsInstanceType(InstanceType):
    """The hardware of an instance type; its `cards` are those with an Elastic Fabric Adapter (EFA).

    Attributes:
        first_card: the first of these cards.
        image: EKS's type of image for its nodes.
        quota_on_demand: the code of the quota on vCPUs of on-demand nodes; empty if it is not known.
        quota_spot: the code of the quota on vCPUs of spot nodes; empty if it is not known.
    """

    first_card: int = 0
    image: AMITypesType = IMAGE
    quota_on_demand: str = ""
    quota_spot: str = ""

    @property
    def efa(self) -> int:
        """The number of network cards with an EFA."""
        return self.cards

    @property
    def fabric(self) -> str:
        """EFA, if it has such a card."""
        return "efa" if self.cards else "tcp"

    @property
    def efa_cards(self) -> tuple[int, ...]:
        """The network cards with an EFA."""
        return tuple(range(self.first_card, self.first_card + self.cards))


class AwsMachineRow(MachineRow):
    """A row of AWS's table.

    Attributes:
        first_card: the first network card with an EFA.
        image: EKS's type of image for its nodes.
        quota_on_demand: the code of the quota on vCPUs of on-demand nodes.
        quota_spot: the code of the quota on vCPUs of spot nodes.
    """

    first_card: int = 0
    image: Literal["AL2023_x86_64_NVIDIA", "AL2023_ARM_64_NVIDIA"]
    quota_on_demand: str = ""
    quota_spot: str = ""

    def hardware(self) -> AwsInstanceType:
        """Return the hardware that the row has."""
        return AwsInstanceType(
            **self.shared(),
            first_card=self.first_card,
            image=self.image,
            quota_on_demand=self.quota_on_demand,
            quota_spot=self.quota_spot,
        )


TABLE = machines.table_of(__package__, AwsMachineRow)
KNOWN: Mapping[str, AwsInstanceType] = MappingProxyType(
    {name: row.hardware() for name, row in TABLE.items() if not row.refused}
)


def refuse(instance_types: Sequence[str]) -> None:
    """Refuse types that the table says are not usable; SpecError has the reason."""
    machines.refuse(instance_types, TABLE, _NOUN)


def hardware_of(instance_types: Sequence[str], aws: Aws) -> dict[str, AwsInstanceType]:
    """Return the hardware of each type; types that the table does not have are read from EC2.

    Raises:
        SpecError: a type is refused, is not in the region, or has no NVIDIA GPU.
    """
    refuse(instance_types)
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
            raise SpecError(f"{_NOUN} {name!r} is not in {aws.region}", remedy=did_you_mean(name, KNOWN))
        machines.check(found[name], _NOUN, DEFAULT_TYPES)
    return found


def described(row: InstanceTypeInfoTypeDef) -> AwsInstanceType:
    """Return the hardware in a row of `describe_instance_types`."""
    # The trainer's images need CUDA: GPUs of AMD, which EC2 lists too, do not count.
    gpus = [gpu for gpu in row.get("GpuInfo", {}).get("Gpus", ()) if gpu["Manufacturer"] == "NVIDIA"]
    network = row["NetworkInfo"]
    with_efa = [
        card["NetworkCardIndex"]
        for card in network.get("NetworkCards", ())
        if "efa-only" in card.get("InterfaceTypes", ())
    ]
    architectures = row.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    cards, vcpus = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0), row["VCpuInfo"]["DefaultVCpus"]
    return AwsInstanceType(
        instance_type=row["InstanceType"],
        gpu=_MODELS.get(gpus[0]["Name"], gpus[0]["Name"]) if gpus else "",
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_memory_gib=round(gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024) if gpus else 0,
        vcpus=vcpus,
        memory_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        cards=cards,
        # p6-b300's card 0 has none.
        first_card=min(with_efa, default=0),
        hugepages_2mi_mib=min(_HUGEPAGES, _HUGEPAGES_OF_CPU * vcpus) if cards else 0,
        architecture=X86 if X86 in architectures or not architectures else architectures[0],
        nvme_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        network_gbit_s=_gbit_s(network),
    )


def _gbit_s(network: NetworkInfoTypeDef) -> float:
    """Return the bandwidth of all cards; where EC2 has only "Up to ...", what is always available.

    The cards' own figures do not add up: each of g6e.48xlarge's four has the 400 Gbit/s of the machine.
    """
    if whole := _WHOLE.fullmatch(network.get("NetworkPerformance", "")):
        return float(whole["gbit_s"]) * int(whole["count"] or 1)
    return sum(card.get("BaselineBandwidthInGbps", 0.0) for card in network.get("NetworkCards", ()))


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the instance types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES
