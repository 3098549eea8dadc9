"""Private endpoints: each has an interface in a subnet, which Azure makes and removes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import INTERFACE, SUBNET, id_of, resolve
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, region_of, store
from cloudrec_sandbox.azure.services.network import interfaces
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind, guid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Network/privateEndpoints"
_CONNECTIONS = ("privateLinkServiceConnections", "manualPrivateLinkServiceConnections")


@register
class PrivateEndpoints(NetworkKind):
    """Private endpoints of storage accounts and other services."""

    type = TYPE
    model = f"{MODELS}:PrivateEndpoint"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the subnet and the service."""
        properties = body.get("properties") or {}
        subnet = id_of(properties, "subnet")
        resolve(call.world, subnet, SUBNET, owner=call.path.text, region=region_of(body))
        wanted = [row for name in _CONNECTIONS for row in properties.get(name) or []]
        if not wanted:
            raise ArmError(
                "InvalidRequestFormat",
                f"Private endpoint {call.path.text} must have a private link service connection.",
            )
        for row in wanted:
            target = str((row.get("properties") or {}).get("privateLinkServiceId") or "")
            if store(call.world).find(target) is None:
                raise ArmError(
                    "PrivateLinkServiceNotFound",
                    f"The resource {target} of private endpoint {call.path.text} was not found.",
                )

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission to join the subnet."""
        yield f"{SUBNET}/join/action", id_of(body.get("properties") or {}, "subnet")

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Make the interface."""
        if old is not None:
            resource.properties["networkInterfaces"] = old["properties"]["networkInterfaces"]
            return
        name = (
            resource.properties.get("customNetworkInterfaceName") or f"{resource.name}.nic.{guid(resource)}"
        )
        id_ = f"{resource.id.partition('/providers/')[0]}/providers/{INTERFACE}/{name}"
        subnet, now = id_of(resource.properties, "subnet"), call.world.now()
        row = {"name": "privateEndpointIpConfig", "properties": {"subnet": {"id": subnet}}}
        document = {
            "id": id_,
            "name": name,
            "type": INTERFACE,
            "location": resource.document["location"],
            "properties": {
                "provisioningState": "Succeeded",
                "privateEndpoint": {"id": resource.id},
                "ipConfigurations": [row],
            },
        }
        interfaces.attach(call.world, subnet, id_)
        store(call.world).add(
            Resource(id=id_, type=INTERFACE, document=document, made_at=now, changed_at=now)
        )
        resource.properties["networkInterfaces"] = [{"id": id_}]

    def removed(self, world: World, resource: Resource) -> None:
        """Remove the interface."""
        for row in resource.properties.get("networkInterfaces") or []:
            if (found := store(world).find(row["id"])) is not None:
                operations.remove(world, found)


def inside(world: World, subnet: str) -> Iterator[dict[str, str]]:
    """Yield the private endpoints in a subnet."""
    for each in store(world).of_type(TYPE):
        if id_of(each.properties, "subnet").lower() == subnet.lower():
            yield {"id": each.id}
