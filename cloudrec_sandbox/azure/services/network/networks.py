"""Virtual networks. A PUT removes the subnets that its body omits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import NETWORK, SUBNET
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, region_of, store
from cloudrec_sandbox.azure.services.network import interfaces
from cloudrec_sandbox.azure.services.network.addresses import check_spaces
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind, guid
from cloudrec_sandbox.azure.services.network.subnets import (
    Subnets,
    check_properties,
    complete,
    prefixes_of,
    subnets_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.core.world import World


@register
class VirtualNetworks(NetworkKind):
    """Networks."""

    type = NETWORK
    model = f"{MODELS}:VirtualNetwork"
    name_rule = r"[A-Za-z0-9](?:[\w.-]{0,62}\w)?"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the address spaces and, for a PUT, the subnets in the body and those that it omits."""
        properties = body.get("properties") or {}
        prefixes = (properties.get("addressSpace") or {}).get("addressPrefixes") or []
        if not prefixes:
            raise ArmError(
                "InvalidRequestFormat",
                f"Cannot parse the request: address space of virtual network {call.path.name} is empty.",
            )
        check_spaces(prefixes, call.path.text)
        if call.request.method == "PATCH":
            return
        wanted = _inline(body)
        for name, row in wanted.items():
            others = {other: prefixes_of(each) for other, each in wanted.items() if other != name}
            check_properties(
                call.world,
                row,
                id_=f"{call.path.text}/subnets/{name}",
                spaces=prefixes,
                others=others,
                region=region_of(body),
            )
        # What a PUT omits is deleted, and a subnet with machines in it cannot be.
        kept = {name.lower() for name in wanted}
        for subnet in subnets_of(call.world, old.id) if old else ():
            if subnet.name.lower() not in kept:
                interfaces.refuse_in_use(call.world, subnet)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Move the subnets out of the document: they are separate resources."""
        resource.properties.setdefault("enableDdosProtection", False)
        resource.properties["resourceGuid"] = guid(resource)
        resource.properties.setdefault("privateEndpointVNetPolicies", "Disabled")
        resource.properties.pop("subnets", None)
        # A PATCH changes only tags: the subnets stay.
        if call.request.method == "PATCH":
            return
        wanted = _inline(body)
        kept = {name.lower() for name in wanted}
        for subnet in subnets_of(call.world, resource.id):
            if subnet.name.lower() not in kept:
                store(call.world).resources.pop(subnet.key)
        for name, row in wanted.items():
            _put_inline(call, resource, name, row)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the subnets."""
        shown = super().show(world, resource)
        rows = [_SUBNET.show(world, subnet) for subnet in subnets_of(world, resource.id)]
        return shown | {"properties": {**resource.properties, "subnets": rows, "virtualNetworkPeerings": []}}

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while anything is in a subnet."""
        for subnet in subnets_of(world, resource.id):
            interfaces.refuse_in_use(world, subnet)

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """Return the network itself and all its subnets."""
        yield from super().locks(world, path)
        yield from subnets_of(world, path.text)


def _inline(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the properties of the subnets in a body, by name."""
    wanted: dict[str, dict[str, Any]] = {}
    for row in (body.get("properties") or {}).get("subnets") or []:
        name = str(row.get("name") or str(row.get("id") or "").rpartition("/")[2])
        if not name:
            raise ArmError("InvalidRequestFormat", "Cannot parse the request: a subnet has no name.")
        wanted[name] = row.get("properties") or {}
    return wanted


def _put_inline(call: Call, network: Resource, name: str, properties: dict[str, Any]) -> None:
    now, id_ = call.world.now(), f"{network.id}/subnets/{name}"
    found = store(call.world).find(id_) or Resource(
        id=id_, type=SUBNET, document={}, made_at=now, changed_at=now
    )
    found.document = {"id": found.id, "name": found.name, "type": SUBNET, "properties": dict(properties)}
    complete(found, network.location)
    found.properties["provisioningState"] = "Succeeded"
    store(call.world).add(found)


_SUBNET = Subnets()
