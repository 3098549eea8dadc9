"""The availability zones of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import SpecError
from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.aws.layout import TAG_ZONES
from cloudrec.providers.aws.prices import shipped
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.spec.models import ClusterSpec

_MOST = 3  # zones to try for GPU nodes if the spec names none
_FEWEST = 2  # zones with subnets: EKS's minimum
# EKS refuses subnets in these zones (UnsupportedAvailabilityZoneException), when the network exists already:
# "Amazon EKS networking requirements for VPC and subnets" in its user guide.
_WITHOUT_EKS = frozenset(("use1-az3", "usw1-az2", "cac1-az3"))
_BETWEEN = " / "  # in the VPC's tag: zones for GPU nodes / the other zones


@dataclass(frozen=True, kw_only=True)
class AwsZones:
    """The zones of a cluster.

    Attributes:
        gpu: zones to try for GPU nodes, the best first.
        all: every zone with subnets, sorted.
    """

    gpu: tuple[str, ...]
    all: tuple[str, ...]


def choose(aws: Aws, cluster: ClusterSpec, instance_types: Sequence[str]) -> AwsZones:
    """Return the spec's zones, else those of the existing cluster, else those that offer the first type.

    AWS's offers change from month to month, and a subnet cannot move to another zone. So an existing cluster
    keeps its zones, and zones that a changed spec names are added.

    Raises:
        SpecError: a zone is not in this region, or no zone offers the first instance type.
    """
    laid_out = _laid_out(aws, cluster.title)
    if cluster.zones or laid_out is None:
        gpu = _named(aws, cluster.zones) if cluster.zones else _offering(aws, instance_types[0])
    else:
        gpu = laid_out.gpu
    everything = {*gpu, *(laid_out.all if laid_out else ())}
    # EKS refuses a cluster with subnets in one zone only. The added zone gets no GPU nodes.
    if len(everything) < _FEWEST:
        others = [zone for zone in available(aws) if zone not in everything]
        everything |= set(others[: _FEWEST - len(everything)])
    return AwsZones(gpu=gpu, all=tuple(sorted(everything)))


def as_tag(zones: AwsZones) -> str:
    """Return the zones as the value of the tag `cloudrec-zones`."""
    others = [zone for zone in zones.all if zone not in zones.gpu]
    return " ".join(zones.gpu) + (_BETWEEN + " ".join(others) if others else "")


def available(aws: Aws) -> list[str]:
    """Return the names of the region's availability zones in which this account can have EKS, sorted."""
    return [name for name, zone_id in _zone_ids(aws).items() if zone_id not in _WITHOUT_EKS]


def _zone_ids(aws: Aws) -> dict[str, str]:
    """Return the id of each of the region's availability zones, such as use1-az3, by name, sorted by name.

    Which zone a name such as us-east-1a means differs from account to account; an id means the same zone.
    """
    answer = aws.read(
        aws.ec2.describe_availability_zones,
        Filters=[
            {"Name": "zone-type", "Values": ["availability-zone"]},
            {"Name": "state", "Values": ["available"]},
        ],
    )
    rows = answer.get("AvailabilityZones") or ()
    return dict(sorted((row["ZoneName"], row["ZoneId"]) for row in rows))


def _laid_out(aws: Aws, title: str) -> AwsZones | None:
    """Return the zones in the tag of the cluster's VPC; None if there is no such VPC."""
    rows = aws.rows(
        aws.ec2.get_paginator("describe_vpcs").paginate,
        lambda page: page.get("Vpcs"),
        Filters=[{"Name": f"tag:{TAG_CLUSTER}", "Values": [title]}],
    )
    for row in rows:
        gpu, _, others = as_map(row.get("Tags")).get(TAG_ZONES, "").partition(_BETWEEN)
        if gpu:
            return AwsZones(gpu=tuple(gpu.split()), all=tuple(sorted({*gpu.split(), *others.split()})))
    return None


def _named(aws: Aws, zones: Sequence[str]) -> tuple[str, ...]:
    there = _zone_ids(aws)
    usable = [name for name, zone_id in there.items() if zone_id not in _WITHOUT_EKS]
    for zone in zones:
        if zone not in usable:
            why = f"which is zone {there[zone]}, where EKS has no clusters" if zone in there else ""
            raise SpecError(
                f"cluster.zones has {zone!r}, {why or f'which is not a zone of region {aws.region}'}",
                remedy=f"choose from {', '.join(usable)}",
            )
    return tuple(zones)


def offering(aws: Aws, instance_types: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones that offer each type, sorted; none for a type that the region does not have."""
    rows = aws.rows(
        aws.ec2.get_paginator("describe_instance_type_offerings").paginate,
        lambda page: page.get("InstanceTypeOfferings"),
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(instance_types)}],
    )
    return {
        name: tuple(sorted(row["Location"] for row in rows if row["InstanceType"] == name))
        for name in instance_types
    }


def _offering(aws: Aws, instance_type: str) -> tuple[str, ...]:
    zones = offering(aws, [instance_type])[instance_type]
    if not zones:
        # A type of the shipped table exists, though not in this region; any other name may be misspelt.
        known = shipped().types
        if instance_type not in known:
            raise SpecError(
                f"region {aws.region} has no instance type {instance_type!r}",
                remedy=did_you_mean(instance_type, known),
            )
        raise SpecError(
            f"region {aws.region} has no {instance_type}",
            remedy="choose another region with --region, or other --instance-types",
        )
    usable = available(aws)
    found = tuple(zone for zone in zones if zone in usable)
    if not found:
        raise SpecError(
            f"region {aws.region} has {instance_type} only in {', '.join(zones)}, where EKS has no clusters",
            remedy="choose another region with --region, or other --instance-types",
        )
    return found[:_MOST]
