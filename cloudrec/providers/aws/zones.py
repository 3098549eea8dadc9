"""In which availability zones a cluster lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import SpecError
from cloudrec.providers.aws.driver import as_map
from cloudrec.providers.aws.layout import TAG_ZONES
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.aws.client import Aws
    from cloudrec.spec.models import ClusterSpec

_MOST, _FEWEST = 3, 2  # zones that are tried when none are named; zones that EKS wants
_BETWEEN = " / "  # in the VPC's tag: zones for GPU nodes / the others


@dataclass(frozen=True, kw_only=True)
class Zones:
    """The zones to try for GPU nodes, in order; and all that get subnets, sorted."""

    gpu: tuple[str, ...]
    all: tuple[str, ...]


def choose(aws: Aws, cluster: ClusterSpec, instance_types: Sequence[str]) -> Zones:
    """Take the spec's zones, or those that the cluster was laid out for, or those that have the first type.

    What AWS offers changes from month to month, and a subnet cannot move: a cluster that exists keeps its
    zones, and a spec that names others adds to them.

    Raises:
        SpecError: a zone is not of this region, or no zone has the first instance type.
    """
    laid_out = _laid_out(aws, cluster.title)
    if cluster.zones or laid_out is None:
        gpu = _named(aws, cluster.zones) if cluster.zones else _offering(aws, instance_types[0])
    else:
        gpu = laid_out.gpu
    everything = {*gpu, *(laid_out.all if laid_out else ())}
    if len(everything) < _FEWEST:
        others = [zone for zone in available(aws) if zone not in everything]
        everything |= set(others[: _FEWEST - len(everything)])
    return Zones(gpu=gpu, all=tuple(sorted(everything)))


def as_tag(zones: Zones) -> str:
    """Return the zones as the VPC's tag tells them."""
    others = [zone for zone in zones.all if zone not in zones.gpu]
    return " ".join(zones.gpu) + (_BETWEEN + " ".join(others) if others else "")


def available(aws: Aws) -> list[str]:
    """Return the region's availability zones that this account may use, sorted."""
    rows = aws.read(
        "ec2",
        "describe_availability_zones",
        "AvailabilityZones",
        Filters=[
            {"Name": "zone-type", "Values": ["availability-zone"]},
            {"Name": "state", "Values": ["available"]},
        ],
    )
    return sorted(row["ZoneName"] for row in rows)


def _laid_out(aws: Aws, title: str) -> Zones | None:
    """Read the zones off the cluster's VPC, where there is one."""
    rows = aws.read(
        "ec2", "describe_vpcs", "Vpcs", Filters=[{"Name": f"tag:{TAG_CLUSTER}", "Values": [title]}]
    )
    for row in rows:
        gpu, _, others = as_map(row.get("Tags")).get(TAG_ZONES, "").partition(_BETWEEN)
        if gpu:
            return Zones(gpu=tuple(gpu.split()), all=tuple(sorted({*gpu.split(), *others.split()})))
    return None


def _named(aws: Aws, zones: Sequence[str]) -> tuple[str, ...]:
    there = available(aws)
    for zone in zones:
        if zone not in there:
            raise SpecError(
                f"cluster.zones has {zone!r}, which is no zone of region {aws.region}",
                remedy=f"take of {', '.join(there)}",
            )
    return tuple(zones)


def offering(aws: Aws, instance_types: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones that have each type, sorted."""
    rows = aws.read(
        "ec2",
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
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
        known = aws.prices.types
        if instance_type not in known:
            raise SpecError(
                f"region {aws.region} has no instance type {instance_type!r}",
                remedy=did_you_mean(instance_type, known),
            )
        raise SpecError(
            f"region {aws.region} has no {instance_type}",
            remedy="choose another region with --region, or other --instance-types",
        )
    return zones[:_MOST]
