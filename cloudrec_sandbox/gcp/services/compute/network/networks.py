"""Networks, and their peerings, which one side alone can end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Network, NetworksRemovePeeringRequest

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection
from cloudrec_sandbox.gcp.services.compute.network import profiles

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"compute-network": 15, "compute-peering": 20})

_MTU = range(1300, 8897)
_RDMA_MTU = 8896  # the default of networks with an RDMA profile ("RDMA network profiles", as in `profiles`)
NETWORKS = Collection(
    name="networks",
    noun="network",
    scope="global",
    message=Network,
    duration="compute-network",
    quota="NETWORKS",
)


def _check(call: Call, document: dict[str, Any]) -> None:
    del call
    if "IPv4Range" in document or "autoCreateSubnetworks" not in document:
        raise GcpError(
            "INVALID_ARGUMENT",
            "Invalid value for field 'resource.autoCreateSubnetworks': ''. Legacy networks can no longer be"
            " created: set it to true or false, and no IPv4Range.",
        )
    if document["autoCreateSubnetworks"]:
        raise GcpError("UNIMPLEMENTED", "this stand-in has no networks of automatic mode")
    profiles.need(document)
    usual = _RDMA_MTU if document.get("networkProfile") else 1460
    if document.setdefault("mtu", usual) not in _MTU:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'resource.mtu': '{document['mtu']}'. Value must be between"
            f" {_MTU.start} and {_MTU.stop - 1}.",
        )
    document.setdefault("routingConfig", {}).setdefault("routingMode", "REGIONAL")
    document.setdefault("networkFirewallPolicyEnforcementOrder", "AFTER_CLASSIC_FIREWALL")


collections.reads(NETWORKS, aggregated=False)
changes.inserts(NETWORKS, _check)
changes.deletes(NETWORKS)


@collections.view("networks")
def subnets(world: World, resource: Resource) -> dict[str, Any]:
    """Return the links of the network's subnets, which every network shows."""
    link = resource.document["selfLink"]
    known = store.within(world, "compute", "projects/", "subnetworks")
    found = [each.document["selfLink"] for each in known if each.document["network"] == link]
    return {"subnetworks": found} if found else {}


@references.guard("networks")
def peered(world: World, resource: Resource) -> str:
    """Return the name of a peering, which prevents the network's deletion; '' if it has none."""
    del world
    peerings = resource.document.get("peerings")
    return f"{resource.path}/peerings/{peerings[0]['name']}" if peerings else ""


@rest(
    "compute",
    "networks.removePeering",
    "POST",
    NETWORKS.url + "/{name}/removePeering",
    body=NetworksRemovePeeringRequest,
    query=("requestId",),
    permission="compute.networks.removePeering",
)
def remove_peering(call: Call) -> dict[str, Any]:
    """End a peering from this side; that needs no consent of the other side."""
    resource = references.ready(NETWORKS.need(call))
    name = call.body.get("name", "")
    if name not in {each["name"] for each in resource.document.get("peerings", [])}:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'name': '{name}'. There is no such peering in"
            f" network '{resource.path}'.",
        )
    seconds = call.world.duration("compute-peering")
    return changes.change(call, resource, "removePeering", seconds, unpeer, (name,))


def unpeer(world: World, path: str, name: str) -> None:
    """Remove the peering."""
    document = store.need(world, "compute", path).document
    document["peerings"] = [each for each in document.get("peerings", []) if each["name"] != name]
    if not document["peerings"]:
        del document["peerings"]
