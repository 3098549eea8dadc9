"""Actions on clusters and pools beside PUT and DELETE, and lists of a pool's machines."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError, not_found
from cloudrec_sandbox.azure.arm.registry import durations, kinds, route
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks import nodes, pools, scale_sets
from cloudrec_sandbox.azure.services.aks.pools import CLUSTER, TYPE
from cloudrec_sandbox.azure.services.compute import machines
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"aks-abort": 30})

_ABORTED = "OperationCanceled"


@route("POST", f"{CLUSTER}/abort")
def abort_cluster(call: Call) -> Reply:
    """Abort a cluster's running operation."""
    return _abort(call)


@route("POST", f"{TYPE}/abort")
def abort_pool(call: Call) -> Reply:
    """Abort a pool's running operation."""
    return _abort(call)


def _abort(call: Call) -> Reply:
    resource = _owner(call)
    running = operations.find(call.world, resource.busy) if resource.busy else None
    if running is None or running.is_over:
        return Reply(status=HTTPStatus.NO_CONTENT)
    if running.verb == "delete":
        raise ArmError(
            "OperationNotAllowed",
            f"Abort is not allowed: {resource.name} is being deleted.",
            status=HTTPStatus.CONFLICT,
        )
    kinds[resource.type.lower()].mark(resource, "Canceling")
    operation = operations.begin(call.world, resource, "abort")
    # The running operation still holds the resource until the abort ends it.
    resource.busy = running.id
    call.world.after(call.world.duration("aks-abort"), aborted, operation.id, running.id)
    return Reply(status=HTTPStatus.ACCEPTED, headers=operations.headers(call, operation))


def aborted(world: World, abort_id: str, running_id: str) -> None:
    """Abort the running operation; the resources that it made so far remain."""
    abort, running = operations.find(world, abort_id), operations.find(world, running_id)
    if abort is None or running is None:
        return
    resource = store(world).find(running.about)
    if resource is not None and not running.is_over:
        kinds[resource.type.lower()].fail(world, resource, running)
        kinds[resource.type.lower()].mark(resource, operations.CANCELED)
        error = ArmError(_ABORTED, f"The operation {running.id} on {resource.name} was canceled by a user.")
        operations.conclude(world, running, error, canceled=True)
    operations.conclude(world, abort)


def _owner(call: Call) -> Resource:
    """Return the cluster or the pool of an action."""
    rules.check_version(call, call.path.type, pools.APIS)
    id_ = call.path.text.rpartition("/")[0]
    found = store(call.world).find(id_)
    if found is None:
        raise not_found(id_, call.path.type.rpartition("/")[0], call.path.group)
    return found


@route("GET", f"{TYPE}/machines")
def listing(call: Call) -> dict[str, Any]:
    """Return a pool's nodes."""
    pool = store(call.world).find(call.path.parent)
    if pool is None:
        raise not_found(call.path.parent, TYPE, call.path.group)
    cluster = store(call.world).find(pool.path.parent)
    if cluster is None:
        return {"value": []}
    scale_set = scale_sets.id_of(pool, nodes.group_name(cluster))
    found = store(call.world).find(scale_set)
    held = call.world.state(machines.Machines).claims.get(scale_set.lower())
    places = [place for place, count in held.places.items() for _ in range(count)] if held else []
    names = scale_sets.machines_of(found) if found else []
    return {
        "value": [_machine(pool, scale_set, name, place) for name, place in zip(names, places, strict=True)]
    }


def _machine(pool: Resource, scale_set: str, name: str, place: str) -> dict[str, Any]:
    number = int(name.removeprefix(scale_set.rpartition("/")[2]))
    zone = place.rpartition("-")[2] if "-" in place else ""
    return {
        "id": f"{pool.id}/machines/{name}",
        "name": name,
        "type": f"{TYPE}/machines",
        "zones": [zone] if zone else [],
        "properties": {"resourceId": f"{scale_set}/virtualMachines/{number}", "network": {"ipAddresses": []}},
    }


@route("POST", f"{TYPE}/upgradeNodeImageVersion")
def upgrade_image(call: Call) -> Reply:
    """Begin to give a pool's nodes the latest image, which they already have."""
    pool = _owner(call)
    kind = kinds[TYPE.lower()]
    for each in kind.locks(call.world, pool.path):
        running = operations.find(call.world, each.busy) if each.busy else None
        if running is not None and not running.is_over:
            raise kind.busy(each, running)
    kind.mark(pool, "UpgradingNodeImageVersion")
    operation: Operation = operations.start(
        call.world, pool, "update", call.world.duration("aks-pool-update"), fault=call.fault
    )
    operation.facts["drains"] = True
    return Reply(status=HTTPStatus.ACCEPTED, headers=operations.headers(call, operation))
