"""Private DNS zones and their links to networks. Bodies are not checked: their SDK is not installed."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure import crud
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.references import NETWORK, id_of, resolve
from cloudrec_sandbox.azure.arm.registry import durations, kinds, route
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.core.world import World

durations({"dns-create": 20, "dns-delete": 20})

ZONE = "Microsoft.Network/privateDnsZones"
LINK = f"{ZONE}/virtualNetworkLinks"


class _DnsKind(Kind):
    apis: ClassVar[Sequence[str]] = ("2024-06-01", "2020-06-01")
    regions: ClassVar[Sequence[str]] = ("global",)
    create_time = update_time = "dns-create"
    delete_time = "dns-delete"
    create_status = update_status = HTTPStatus.ACCEPTED


@register
class Zones(_DnsKind):
    """Zones."""

    type = ZONE
    name_rule = r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){1,33}"

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the zone's counts."""
        shown = super().show(world, resource)
        links = len(list(store(world).of_type(LINK, resource.id)))
        shown["properties"] = {
            **resource.properties,
            "maxNumberOfRecordSets": 25000,
            "numberOfRecordSets": 1,
            "maxNumberOfVirtualNetworkLinks": 1000,
            "numberOfVirtualNetworkLinks": links,
        }
        return shown


@route("DELETE", ZONE)
def delete_zone(call: Call) -> Reply:
    """Refuse while a network is linked; the deletion of a whole group continues anyway."""
    if any(store(call.world).of_type(LINK, call.path.text)):
        raise ArmError(
            "CannotDeleteResource",
            f"Can not delete resource before nested resources are deleted. Zone {call.path.name} has virtual "
            "network links.",
            status=HTTPStatus.CONFLICT,
        )
    return crud.delete(call, kinds[ZONE.lower()])


@register
class Links(_DnsKind):
    """Links of zones to networks. They do not prevent a network's deletion."""

    type = LINK

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that the network exists."""
        network = id_of(body.get("properties") or {}, "virtualNetwork")
        resolve(call.world, network, NETWORK, owner=call.path.text, region="")

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Set the state of a complete link."""
        resource.properties["virtualNetworkLinkState"] = "Completed"
