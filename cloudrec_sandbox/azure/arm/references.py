"""References between the resources of a network."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.store import store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World


def id_of(properties: dict[str, Any], member: str) -> str:
    """Return the id that a member refers to; '' if it refers to none."""
    return str((properties.get(member) or {}).get("id") or "")


def resolve(world: World, id_: str, kind: str, *, owner: str, region: str) -> Resource:
    """Return the resource with an id; ArmError if it does not exist, is elsewhere, or is not ready."""
    found = store(world).find(id_)
    if found is None or found.type.lower() != kind.lower() or found.deleting:
        raise ArmError(
            "InvalidResourceReference",
            f"Resource {id_} referenced by resource {owner} was not found. Please make sure that the "
            "referenced resource exists, and that both resources are in the same region.",
        )
    if found.location and region and found.location != region:
        raise ArmError(
            "InvalidResourceReference",
            f"Resource {id_} referenced by resource {owner} is in {found.location}, not in {region}. Please "
            "make sure that both resources are in the same region.",
        )
    state = found.properties.get("provisioningState")
    if state not in ("Succeeded", None):
        raise ArmError(
            "ReferencedResourceNotProvisioned",
            f"Cannot proceed with operation because resource {id_} used by resource {owner} is not in "
            f"Succeeded state. Resource is in {state} state.",
            status=HTTPStatus.CONFLICT,
        )
    return found


def referring(world: World, id_: str, kind: str, member: str) -> Iterator[Resource]:
    """Yield the resources of a type whose member refers to an id, or did until their operation ends."""
    for found in store(world).of_type(kind):
        if id_.lower() in (id_of(found.properties, member).lower(), *found.facts.get(LEAVING, ())):
            yield found


LEAVING = "leaving"  # a fact: ids in lower case that a resource refers to until its operation ends
SUBNET = "Microsoft.Network/virtualNetworks/subnets"
NETWORK = "Microsoft.Network/virtualNetworks"
GROUP = "Microsoft.Network/networkSecurityGroups"
NAT = "Microsoft.Network/natGateways"
ADDRESS = "Microsoft.Network/publicIPAddresses"
BALANCER = "Microsoft.Network/loadBalancers"
INTERFACE = "Microsoft.Network/networkInterfaces"
