"""EC2's capacity: which instance types a zone offers, and how many instances it has left.

`capacity` of /_control: {"p4d.24xlarge/us-east-1a/spot": 0}, instances still available (`on-demand`, `spot`,
`capacity-block`); a key that is not named has no limit, null removes a limit. `types_offered`: {"us-east-1a":
["m5.large"]}, all that a zone offers, instead of moto's list. `capacity_trace` limits over time how many can
run at once (`cloudrec_sandbox.core.capacity.traces`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from cloudrec_sandbox.aws.api.registry import operation, setting
from cloudrec_sandbox.aws.services import quotas
from cloudrec_sandbox.core.capacity import traces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_PARTS = 3
_LIFECYCLES = ("on-demand", "spot", "capacity-block")
_TRACED = ("on-demand", "spot")  # a block's instances are its buyer's
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
_FIRST_STANDARD = "ACDHIMRTZ"  # first letters of the families that the Standard quotas count


@dataclass
class Capacity:
    """Instances left, and types offered, by zone."""

    left: dict[str, int] = field(default_factory=dict)
    offered: dict[str, list[str]] = field(default_factory=dict)


def exists(instance_type: str) -> bool:
    """Return whether the instance type exists in any region."""
    return instance_type in INSTANCE_TYPES


def vcpus(instance_type: str) -> int:
    """Return the vCPUs of an instance type."""
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])


def is_offered(world: World, instance_type: str, zone: str) -> bool:
    """Return whether a zone offers a type."""
    offered = world.state(Capacity).offered.get(zone)
    if offered is not None:
        return instance_type in offered
    return (instance_type, zone) in _offerings(zone[:-1])


def _offerings(region: str) -> set[tuple[str, str]]:
    if region not in _known:
        rows = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
        _known[region] = {(row["InstanceType"], row["Location"]) for row in rows}
    return _known[region]


_known: dict[str, set[tuple[str, str]]] = {}  # moto's table as a set: it never changes


def take(world: World, instance_type: str, zone: str, lifecycle: str, *, ahead: int = 0) -> bool:
    """Take one instance's capacity; return False if none is left.

    Args:
        world: the account.
        instance_type: the instance type.
        zone: the zone.
        lifecycle: on-demand, spot or capacity-block.
        ahead: instances that the same call has taken and not started yet.
    """
    left = world.state(Capacity).left
    key = f"{instance_type}/{zone}/{lifecycle}"
    most = traces.most(world, key)
    if most is not None and len(list(running(world, instance_type, zone, lifecycle))) + ahead >= most:
        return False
    if key not in left:
        return True
    if left[key] <= 0:
        return False
    left[key] -= 1
    return True


def running(world: World, instance_type: str, zone: str, lifecycle: str) -> Iterator[Any]:  # moto's instances
    """Yield the instances of a type and lifecycle that use a zone's capacity, the oldest first."""
    for reservation in world.backend("ec2", zone[:-1]).reservations.values():
        for instance in reservation.instances:
            if (
                (instance.instance_type, instance.placement.zone) == (instance_type, zone)
                and instance.state in ("pending", "running")
                and (instance.lifecycle or "on-demand") == lifecycle
            ):
                yield instance


def place(_world: World, zone: str, instance_type: str, lifecycle: str) -> str:
    """Return the key of `capacity`; ValueError if there is no such place for a trace."""
    key = f"{instance_type}/{zone}/{lifecycle}"
    if not exists(instance_type) or lifecycle not in _TRACED or not _ZONE.fullmatch(zone):
        raise ValueError(f"capacity_trace: {key!r} is not TYPE/ZONE/({'|'.join(_TRACED)}) of a known type")
    return key


def give_back(world: World, instance_type: str, zone: str, lifecycle: str) -> None:
    """Return one instance's capacity."""
    left = world.state(Capacity).left
    key = f"{instance_type}/{zone}/{lifecycle}"
    if key in left:
        left[key] += 1


def quota_of(instance_type: str, lifecycle: str) -> str | None:
    """Return the quota that counts the type's vCPUs; None if no quota of the stand-in counts them."""
    family = instance_type.partition(".")[0].upper()
    spot = lifecycle == "spot"
    if family.startswith("P"):
        # P5 spot has a quota apart from P4, P3 and P2.
        if spot:
            return quotas.SPOT_P5 if family.startswith("P5") else quotas.SPOT_P
        return quotas.ON_DEMAND_P
    if family.startswith(("G", "VT")):
        return quotas.SPOT_G if spot else quotas.ON_DEMAND_G
    if family[0] in _FIRST_STANDARD:
        return quotas.SPOT_STANDARD if spot else quotas.ON_DEMAND_STANDARD
    return None


def has_quota(world: World, region: str, instance_type: str, lifecycle: str) -> bool:
    """Return whether one more instance stays within the vCPU quota; capacity blocks are not counted."""
    quota = quota_of(instance_type, lifecycle)
    if quota is None or lifecycle == "capacity-block":
        return True
    used = sum(
        vcpus(instance.instance_type)
        for reservation in world.backend("ec2", region).reservations.values()
        for instance in reservation.instances
        if instance.state not in ("terminated", "stopped")
        and exists(instance.instance_type)
        and quota_of(instance.instance_type, instance.lifecycle or "on-demand") == quota
    )
    return used + vcpus(instance_type) <= quotas.limit(world, quota)


@operation("ec2", "DescribeInstanceTypeOfferings")
def describe_instance_type_offerings(call: Call) -> dict[str, Any]:
    """Show the types that `types_offered` of /_control sets for a zone."""
    output = call.output()
    if call.world.state(Capacity).offered and call.params.get("LocationType") == "availability-zone":
        output["InstanceTypeOfferings"] = [
            row
            for row in output["InstanceTypeOfferings"]
            if is_offered(call.world, row["InstanceType"], row["Location"])
        ]
    return output


def _write_capacity(world: World, wishes: dict[str, int | None]) -> None:
    for key, count in wishes.items():
        parts = key.split("/")
        if len(parts) != _PARTS or parts[2] not in _LIFECYCLES or not exists(parts[0]):
            raise ValueError(f"capacity {key!r} is not TYPE/ZONE/({'|'.join(_LIFECYCLES)}) of a known type")
        if count is None:
            world.state(Capacity).left.pop(key, None)
        else:
            world.state(Capacity).left[key] = int(count)


def _write_offered(world: World, wishes: dict[str, list[str]]) -> None:
    world.state(Capacity).offered = {zone: list(types) for zone, types in wishes.items()}


setting("capacity", read=lambda world: world.state(Capacity).left, write=_write_capacity)
setting("types_offered", read=lambda world: world.state(Capacity).offered, write=_write_offered)
