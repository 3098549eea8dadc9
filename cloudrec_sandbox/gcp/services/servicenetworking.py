"""Service Networking (v1): a network's private connection to services such as Managed Lustre.

A connection shows as a peering of the network. It cannot be deleted while a service uses it, nor just after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import operations, store
from cloudrec_sandbox.gcp.services.lustre import instances

if TYPE_CHECKING:
    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"servicenetworking-connection": 60, "servicenetworking-lingering": 300})

_PRODUCER = "servicenetworking.googleapis.com"
_MARK = "pssn.p24-"  # prefix of its operations' names
_PEERING = "servicenetworking-googleapis-com"
_CONNECTIONS = "/v1/services/{service}/connections"


def _network(call: Call, reference: str) -> Resource:
    """Return the network of projects/NUMBER/global/networks/NAME: the project's id is refused."""
    words = reference.split("/")
    project = projects.find(call.world, words[1]) if len(words) == 5 else None  # noqa: PLR2004 - parts of that path
    if project is None or words[1] != project.number:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid network '{reference}': it must be projects/PROJECT_NUMBER/global/networks/NAME.",
        )
    path = f"projects/{project.id}/global/networks/{words[4]}"
    found = store.find(call.world, "compute", path)
    if found is None:
        raise GcpError("NOT_FOUND", f"Network '{reference}' was not found")
    return found


def _check_service(call: Call) -> None:
    if call.params["service"] != _PRODUCER:
        raise GcpError("NOT_FOUND", f"Service '{call.params['service']}' was not found")


@rest(
    "servicenetworking",
    "services.connections.create",
    "POST",
    _CONNECTIONS,
    body=dict,
    permission="servicenetworking.services.addPeering",
)
def create(call: Call) -> Operation:
    """Begin to connect a network, by ranges that it has allocated for that."""
    _check_service(call)
    network = _network(call, call.body.get("network", ""))
    project = network.path.split("/")[1]
    names = call.body.get("reservedPeeringRanges", [])
    if not names:
        raise GcpError("INVALID_ARGUMENT", "reservedPeeringRanges must name an allocated range.")
    for name in names:
        address = store.find(call.world, "compute", f"projects/{project}/global/addresses/{name}")
        fits = address is not None and address.document.get("purpose") == "VPC_PEERING"
        if not fits or store.path_of(str(address and address.document.get("network", ""))) != network.path:
            raise GcpError("INVALID_ARGUMENT", f"Couldn't find allocated range '{name}' in {network.path}.")
    # A second call must change the connection (PATCH) instead: CreateConnection would replace its ranges.
    if _find(network):
        raise GcpError("FAILED_PRECONDITION", "Cannot modify allocated ranges in CreateConnection.")
    return operations.begin_long(
        call.world,
        "",
        mark=_MARK,
        seconds=call.world.duration("servicenetworking-connection"),
        step=created,
        arguments=(network.path, list(names)),
    )


def created(world: World, path: str, ranges: list[str]) -> Struct:
    """Add the peering to the network."""
    network = store.need(world, "compute", path)
    network.document.setdefault("peerings", []).append(
        {
            "name": _PEERING,
            "network": store.link("projects/service-producer-tp/global/networks/servicenetworking"),
            "state": "ACTIVE",
            "autoCreateRoutes": True,
            "exchangeSubnetRoutes": True,
        }
    )
    network.hidden["peering_ranges"] = ranges
    return Struct()


def _find(network: Resource) -> dict[str, Any] | None:
    peerings: list[dict[str, Any]] = network.document.get("peerings", [])
    return next((each for each in peerings if each["name"] == _PEERING), None)


@rest(
    "servicenetworking",
    "services.connections.list",
    "GET",
    _CONNECTIONS,
    query=("network",),
    permission="servicenetworking.services.get",
)
def connections(call: Call) -> dict[str, Any]:
    """Return a network's connection, if it has one."""
    _check_service(call)
    network = _network(call, call.query.get("network", ""))
    if not _find(network):
        return {}
    return {
        "connections": [
            {
                "network": call.query["network"],
                "reservedPeeringRanges": network.hidden.get("peering_ranges", []),
                "peering": _PEERING,
                "service": f"services/{_PRODUCER}",
            }
        ]
    }


@rest(
    "servicenetworking",
    "services.connections.deleteConnection",
    "POST",
    _CONNECTIONS + "/{connection}",
    body=dict,
    permission="servicenetworking.services.deleteConnection",
)
def delete(call: Call) -> Operation:
    """Begin to disconnect a network; if a service still uses it, the operation fails."""
    _check_service(call)
    network = _network(call, call.body.get("consumerNetwork", ""))
    if call.params["connection"] != _PEERING or not _find(network):
        raise GcpError("NOT_FOUND", f"Connection '{call.params['connection']}' was not found")
    return operations.begin_long(
        call.world,
        "",
        mark=_MARK,
        seconds=call.world.duration("servicenetworking-connection"),
        step=deleted,
        arguments=(network.path,),
    )


def deleted(world: World, path: str) -> Empty:
    """Remove the peering; GcpError if a service uses it."""
    if instances.uses(world, path, world.duration("servicenetworking-lingering")):
        raise GcpError(
            "FAILED_PRECONDITION",
            "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still"
            " using this connection.",
        )
    network = store.find(world, "compute", path)
    if network:
        kept = [each for each in network.document.get("peerings", []) if each["name"] != _PEERING]
        network.document["peerings"] = kept
    return Empty()
