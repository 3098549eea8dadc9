"""What takes addresses in subnets: node pools, file systems, load balancers, interfaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.network.addresses import room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World


@dataclass(frozen=True, kw_only=True)
class Interfaces:
    """The addresses that one owner has in one subnet."""

    owner: str
    subnet: str
    count: int


@dataclass
class Occupants:
    """Interfaces by owner and subnet, both in lower case."""

    rows: dict[tuple[str, str], Interfaces] = field(default_factory=dict)


def attach(world: World, subnet_id: str, owner: str, count: int = 1) -> None:
    """Set how many addresses an owner has in a subnet; ArmError if they do not fit."""
    rows, key = world.state(Occupants).rows, (owner.lower(), subnet_id.lower())
    free = free_addresses(world, subnet_id) + (rows[key].count if key in rows else 0)
    if count > free:
        name = subnet_id.rpartition("/")[2]
        raise ArmError(
            "SubnetIsFull",
            f"Subnet {name} with address prefix {', '.join(prefixes(world, subnet_id))} does not have enough "
            f"capacity for {count} IP addresses.",
        )
    rows[key] = Interfaces(owner=owner, subnet=subnet_id, count=count)


def lose(world: World, owner: str) -> None:
    """Release one address of an owner in each of its subnets."""
    rows = world.state(Occupants).rows
    for key, row in [(key, row) for key, row in rows.items() if key[0] == owner.lower() and row.count]:
        rows[key] = replace(row, count=row.count - 1)


def detach(world: World, owner: str, after: float = 0.0) -> None:
    """Remove an owner's interfaces after `after` virtual seconds: they linger."""
    if after > 0:
        world.after(after, _drop, owner.lower())
    else:
        _drop(world, owner.lower())


def _drop(world: World, owner: str) -> None:
    rows = world.state(Occupants).rows
    for key in [key for key in rows if key[0] == owner]:
        del rows[key]


def inside(world: World, subnet_id: str) -> Iterator[Interfaces]:
    """Yield what has addresses in a subnet."""
    wanted = subnet_id.lower()
    return (row for (_, subnet), row in world.state(Occupants).rows.items() if subnet == wanted)


def prefixes(world: World, subnet_id: str) -> list[str]:
    """Return a subnet's ranges; empty if it does not exist."""
    subnet = store(world).find(subnet_id)
    if subnet is None:
        return []
    single = subnet.properties.get("addressPrefix")
    return [single] if single else list(subnet.properties.get("addressPrefixes") or [])


def free_addresses(world: World, subnet_id: str) -> int:
    """Return how many addresses a subnet has left."""
    return room(prefixes(world, subnet_id)) - sum(row.count for row in inside(world, subnet_id))


def refuse_in_use(world: World, subnet: Resource) -> None:
    """Raise ArmError if anything is in a subnet."""
    for row in inside(world, subnet.id):
        raise ArmError(
            "InUseSubnetCannotBeDeleted",
            f"Subnet {subnet.name} is in use by {row.owner} and cannot be deleted. In order to delete the "
            "subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.",
        )
