"""Load balancers and single network interfaces, which a cluster's controllers make."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import ADDRESS, BALANCER, INTERFACE, SUBNET, resolve
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of
from cloudrec_sandbox.azure.services.network import interfaces
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind, guid
from cloudrec_sandbox.azure.services.network.outbound import users_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World


@register
class LoadBalancers(NetworkKind):
    """Load balancers; their inner parts are kept as they were sent."""

    type = BALANCER
    model = f"{MODELS}:LoadBalancer"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that the addresses of the frontends exist and are free."""
        region = region_of(body)
        for frontend in _rows(body, "frontendIPConfigurations"):
            for member, kind in (("publicIPAddress", ADDRESS), ("subnet", SUBNET)):
                if id_ := str((frontend.get(member) or {}).get("id") or ""):
                    resolve(call.world, id_, kind, owner=call.path.text, region=region)
            public = str((frontend.get("publicIPAddress") or {}).get("id") or "")
            for user in users_of(call.world, public) if public else ():
                if not user.lower().startswith(call.path.key):
                    raise ArmError(
                        "PublicIPAddressInUse",
                        f"Resource {call.path.text} is referencing public IP address {public} that is "
                        f"already allocated to resource {user}.",
                    )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take an address in every subnet that it has a frontend in."""
        resource.properties["resourceGuid"] = guid(resource)
        resource.document.setdefault("sku", {"name": "Standard", "tier": "Regional"})
        for frontend in _rows(body, "frontendIPConfigurations"):
            if id_ := str((frontend.get("subnet") or {}).get("id") or ""):
                interfaces.attach(call.world, id_, f"{resource.id}/frontendIPConfigurations")

    def removed(self, world: World, resource: Resource) -> None:
        """Release the addresses."""
        interfaces.detach(world, f"{resource.id}/frontendIPConfigurations")


@register
class NetworkInterfaces(NetworkKind):
    """Interfaces."""

    type = INTERFACE
    model = f"{MODELS}:NetworkInterface"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that each of its addresses is in a subnet."""
        region = region_of(body)
        for row in _rows(body, "ipConfigurations"):
            id_ = str((row.get("subnet") or {}).get("id") or "")
            resolve(call.world, id_, SUBNET, owner=call.path.text, region=region)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take the addresses."""
        resource.properties["resourceGuid"] = guid(resource)
        interfaces.detach(call.world, resource.id)
        counts = Counter(str(row["subnet"]["id"]) for row in _rows(body, "ipConfigurations"))
        for subnet, count in counts.items():
            interfaces.attach(call.world, subnet, resource.id, count)

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while a machine uses it."""
        if machine := (resource.properties.get("virtualMachine") or {}).get("id"):
            raise ArmError(
                "NicInUse",
                f"Network Interface {resource.id} is used by existing resource {machine}. In order to delete "
                "the network interface, it must be dissociated from the resource. To learn more, see "
                "aka.ms/deletenic.",
            )

    def removed(self, world: World, resource: Resource) -> None:
        """Release the addresses."""
        interfaces.detach(world, resource.id)


def _rows(body: dict[str, Any], member: str) -> Iterator[dict[str, Any]]:
    for row in (body.get("properties") or {}).get(member) or []:
        yield row.get("properties") or {}
