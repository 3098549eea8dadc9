"""Lustre's instances: created, changed and deleted by long-running operations.

`lustre` of /_control: {"quota_gib": 954000} is the project's quota, {"stock_gib": {"us-central1-a": 0}} what
a zone has left: beyond the quota a call is refused at once, beyond the stock the operation fails and the
instance is removed.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from google.cloud.lustre_v1.types import Instance, ListInstancesResponse, OperationMetadata
from google.protobuf.empty_pb2 import Empty

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import Entry, durations, inventory, rpc, setting
from cloudrec_sandbox.gcp.resources import operations, paging, store
from cloudrec_sandbox.gcp.services.lustre import checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.cloud.lustre_v1.types import (
        CreateInstanceRequest,
        DeleteInstanceRequest,
        GetInstanceRequest,
        ListInstancesRequest,
        UpdateInstanceRequest,
    )
    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"lustre-instance": 900, "lustre-failure": 300, "lustre-update": 300, "lustre-deletion": 300})

_SERVICE = "google.cloud.lustre.v1.Lustre"
_REMEMBERED_S = 3600.0  # how long a request's id returns its operation: google-cloud-lustre's model
_PARENT = re.compile(r"projects/([^/]+)/locations/([^/]+)")
_PEERING = "servicenetworking-googleapis-com"


class Request(NamedTuple):
    """A request with an id: its resource, its operation, and its time."""

    name: str
    operation: str
    moment: float


@dataclass
class Lustre:
    """The instances by name, requests by id, quota and stock."""

    instances: dict[str, Instance] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)  # when a network's last instance was deleted
    quota_gib: int = 7_632_000
    stock_gib: dict[str, int] = field(default_factory=dict)
    imported: dict[str, list[str]] = field(default_factory=dict)  # by instance: what was imported, in order


@rpc("lustre", f"{_SERVICE}/CreateInstance", permission="lustre.instances.create")
def create_instance(call: Call, request: CreateInstanceRequest) -> Operation:
    """Begin to create an instance; a repeated request gets its own operation again."""
    world, state = call.world, call.world.state(Lustre)
    zone = _place(request.parent)
    name = f"{request.parent}/instances/{request.instance_id}"
    if known := _replayed(world, request.request_id, name):
        return known
    checks.instance(world, zone, request.instance_id, request.instance)
    if name in state.instances:
        raise GcpError("ALREADY_EXISTS", f"Resource '{name}' already exists")
    used = sum(each.capacity_gib for each in state.instances.values())
    if used + request.instance.capacity_gib > state.quota_gib:
        raise GcpError(
            "RESOURCE_EXHAUSTED",
            f"Quota limit 'LustreCapacityGibPerProject' has been exceeded. Limit: {state.quota_gib} in region"
            f" {zone[:-2]}.",
        )
    instance = Instance(request.instance)
    instance.name, instance.state = name, Instance.State.CREATING
    instance.uid = str(uuid.uuid4())
    instance.create_time = instance.update_time = as_datetime(world.now())
    state.instances[name] = instance
    # The call succeeds without a peering or capacity: the operation reports the failure, some minutes later.
    failing = _failure(world, instance, zone) is not None
    seconds = world.duration("lustre-failure" if failing else "lustre-instance")
    operation = _begin(call, name, "create", seconds, created)
    return _remember(world, request.request_id, name, operation)


def _place(parent: str) -> str:
    found = _PARENT.fullmatch(parent)
    if found is None:
        raise GcpError("INVALID_ARGUMENT", f"Invalid parent '{parent}'.")
    return found[2]


def _begin(call: Call, name: str, verb: str, seconds: float, step: Callable[..., Any]) -> Operation:
    metadata = OperationMetadata(
        create_time=as_datetime(call.world.now()), target=name, verb=verb, api_version="v1"
    )
    parent = name.partition("/instances/")[0]
    return operations.begin_long(
        call.world, parent, seconds=seconds, step=step, arguments=(name,), metadata=metadata
    )


def _replayed(world: World, request_id: str, name: str) -> Operation | None:
    checks.request_id(request_id)
    known = world.state(Lustre).requests.get(request_id) if request_id else None
    if known is None or world.now() - known.moment > _REMEMBERED_S:
        return None
    if known.name != name:
        raise GcpError(
            "INVALID_ARGUMENT", f"request_id '{request_id}' was used for another request: {known.name}."
        )
    return operations.find_long(world, known.operation)


def _remember(world: World, request_id: str, name: str, operation: Operation) -> Operation:
    if request_id:
        world.state(Lustre).requests[request_id] = Request(name, operation.name, world.now())
    return operation


def _failure(world: World, instance: Instance, zone: str) -> GcpError | None:
    network = store.find(world, "compute", instance.network)
    peerings = network.document.get("peerings", []) if network else []
    # Managed Lustre is in Google's own network, and reachable only over this peering.
    if not any(peering["name"] == _PEERING for peering in peerings):
        return GcpError(
            "FAILED_PRECONDITION",
            f"Network '{instance.network}' has no private connection to services: allocate a range of the"
            " purpose VPC_PEERING and connect servicenetworking.googleapis.com.",
        )
    left = world.state(Lustre).stock_gib.get(zone)
    if left is not None and left < instance.capacity_gib:
        return GcpError(
            "RESOURCE_EXHAUSTED", f"Zone '{zone}' does not have enough resources to fulfill the request."
        )
    # The stock may have changed since the call.
    return None


def created(world: World, name: str) -> Instance:
    """Finish the file system; or fail, and remove its instance."""
    state = world.state(Lustre)
    instance, zone = state.instances[name], name.split("/")[3]
    if failure := _failure(world, instance, zone):
        del state.instances[name]
        raise failure
    if zone in state.stock_gib:
        state.stock_gib[zone] -= instance.capacity_gib
    address = _address(world, instance)
    instance.state = Instance.State.ACTIVE
    instance.mount_point = f"{address}@tcp:/{instance.filesystem}"
    return instance


def _address(world: World, instance: Instance) -> str:
    """Return the address of the servers, which is in the range that the network has allocated."""
    network = store.need(world, "compute", instance.network)
    project, name = instance.network.split("/")[1], network.hidden["peering_ranges"][0]
    block = store.need(world, "compute", f"projects/{project}/global/addresses/{name}").document
    return str(ipaddress.IPv4Address(block["address"]) + 2 + len(world.state(Lustre).instances))


def _need(world: World, name: str) -> Instance:
    instance = world.state(Lustre).instances.get(name)
    if instance is None:
        raise GcpError("NOT_FOUND", f"Resource '{name}' was not found")
    return instance


@rpc("lustre", f"{_SERVICE}/GetInstance", permission="lustre.instances.get")
def get_instance(call: Call, request: GetInstanceRequest) -> Instance:
    """Return an instance."""
    return _need(call.world, request.name)


@rpc("lustre", f"{_SERVICE}/ListInstances", permission="lustre.instances.list")
def list_instances(call: Call, request: ListInstancesRequest) -> ListInstancesResponse:
    """Return the instances of a zone, or with - of all zones."""
    zone = _place(request.parent)
    if request.filter or request.order_by:
        raise GcpError("UNIMPLEMENTED", "this stand-in lists instances without filter and order")
    front = request.parent.partition("/locations/")[0]
    found = [
        instance
        for name, instance in call.world.state(Lustre).instances.items()
        if name.startswith(f"{front}/locations/{'' if zone == '-' else f'{zone}/'}")
    ]
    items, token = paging.part(found, request.page_size, request.page_token)
    return ListInstancesResponse(instances=items, next_page_token=token)


@rpc("lustre", f"{_SERVICE}/UpdateInstance", permission="lustre.instances.update")
def update_instance(call: Call, request: UpdateInstanceRequest) -> Operation:
    """Begin to change labels, the description or the capacity."""
    world, wish = call.world, request.instance
    instance = _active(world, wish.name)
    if known := _replayed(world, request.request_id, wish.name):
        return known
    paths = list(request.update_mask.paths) or [
        field.name for field, _ in Instance.pb(wish).ListFields() if field.name != "name"
    ]
    changed = Instance(instance)
    for path in paths:
        if path not in ("labels", "description", "capacity_gib"):
            raise GcpError("INVALID_ARGUMENT", f"Field '{path}' of an instance cannot be updated.")
        setattr(changed, path, getattr(wish, path))
    checks.capacity(changed)
    if changed.capacity_gib < instance.capacity_gib:
        raise GcpError("INVALID_ARGUMENT", "The capacity of an instance cannot shrink.")
    instance.state = Instance.State.UPDATING
    changed.state = Instance.State.ACTIVE
    operation = operations.begin_long(
        world,
        wish.name.partition("/instances/")[0],
        seconds=world.duration("lustre-update"),
        step=updated,
        arguments=(wish.name, changed),
    )
    return _remember(world, request.request_id, wish.name, operation)


def _active(world: World, name: str) -> Instance:
    """Return the instance with a name; GcpError while an operation changes it."""
    instance = _need(world, name)
    if instance.state != Instance.State.ACTIVE:
        state = Instance.State(instance.state).name
        raise GcpError("FAILED_PRECONDITION", f"Resource '{name}' is in state {state}. It must be ACTIVE.")
    return instance


def updated(world: World, name: str, changed: Instance) -> Instance:
    """Finish a change."""
    changed.update_time = as_datetime(world.now())
    world.state(Lustre).instances[name] = changed
    return changed


@rpc("lustre", f"{_SERVICE}/DeleteInstance", permission="lustre.instances.delete")
def delete_instance(call: Call, request: DeleteInstanceRequest) -> Operation:
    """Begin to delete an instance with all its data."""
    if known := _replayed(call.world, request.request_id, request.name):
        return known
    instance = _active(call.world, request.name)
    instance.state = Instance.State.DELETING
    seconds = call.world.duration("lustre-deletion")
    operation = _begin(call, request.name, "delete", seconds, deleted)
    return _remember(call.world, request.request_id, request.name, operation)


def deleted(world: World, name: str) -> Any:  # noqa: ANN401 - an empty message
    """Remove the instance; its network's connection is in use some seconds longer."""
    state = world.state(Lustre)
    instance = state.instances.pop(name)
    state.gone[instance.network] = world.now()
    zone = name.split("/")[3]
    if zone in state.stock_gib:
        state.stock_gib[zone] += instance.capacity_gib
    return Empty()


def uses(world: World, network: str, lingering_s: float) -> bool:
    # Servers in Google's network are removed some minutes after the instance.
    """Return whether a network's connection is in use, or was until just now."""
    state = world.state(Lustre)
    if any(instance.network == network for instance in state.instances.values()):
        return True
    return network in state.gone and world.now() < state.gone[network] + lingering_s


@inventory
def existing(world: World) -> Iterator[Entry]:
    """Yield the instances."""
    for name, instance in world.state(Lustre).instances.items():
        yield Entry("lustre", "instances", name, instance.state == Instance.State.DELETING)


def _write(world: World, wish: dict[str, Any]) -> None:
    if unknown := sorted(set(wish) - {"quota_gib", "stock_gib"}):
        raise ValueError(f"lustre has no {', '.join(unknown)}; it has: quota_gib, stock_gib")
    state = world.state(Lustre)
    state.quota_gib = int(wish.get("quota_gib", state.quota_gib))
    state.stock_gib |= {zone: int(size) for zone, size in wish.get("stock_gib", {}).items()}


setting(
    "lustre",
    read=lambda world: {
        "quota_gib": world.state(Lustre).quota_gib,
        "stock_gib": world.state(Lustre).stock_gib,
        "imported": world.state(Lustre).imported,
    },
    write=_write,
)
