"""Instances, their disks, groups and templates: GKE makes them; clients read and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Disk

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

_DEFAULT_GB = {"pd-standard": 500, "hyperdisk-balanced": 100}
_USUAL_GB = 100

INSTANCES = Collection(name="instances", noun="instance", scope="zone")
DISKS = Collection(name="disks", noun="disk", scope="zone", message=Disk)
MANAGERS = Collection(name="instanceGroupManagers", noun="instanceGroupManager", scope="zone")
INSTANCE_GROUPS = Collection(name="instanceGroups", noun="instanceGroup", scope="zone")
TEMPLATES = Collection(name="instanceTemplates", noun="instanceTemplate", scope="global")


def _check_disk(call: Call, document: dict[str, Any]) -> None:
    kind = str(document.get("type") or "pd-standard").rpartition("/")[2]
    if not kind.startswith(("pd-", "hyperdisk-")):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'resource.type': '{document['type']}'. The referenced diskType"
            " resource cannot be found.",
        )
    zone = f"projects/{call.project}/zones/{call.params['zone']}"
    document["type"] = store.link(f"{zone}/diskTypes/{kind}")
    document.setdefault("sizeGb", str(_DEFAULT_GB.get(kind, _USUAL_GB)))
    document.setdefault("physicalBlockSizeBytes", "4096")
    document["status"] = "READY"
    references.stamp(document, "labelFingerprint")


for _collection in (INSTANCES, DISKS, MANAGERS, INSTANCE_GROUPS, TEMPLATES):
    collections.reads(_collection)
    changes.deletes(_collection)
changes.inserts(DISKS, _check_disk)


@collections.view("disks")
def disk_users(world: World, resource: Resource) -> dict[str, Any]:
    """Return the instances that use a disk."""
    user = references.user_of(world, resource)
    return {"users": [store.link(user)]} if user else {}


@rest(
    "compute",
    "instanceGroupManagers.listManagedInstances",
    "POST",
    MANAGERS.url + "/{name}/listManagedInstances",
    query=paging.QUERY,
    permission="compute.instanceGroupManagers.get",
)
def managed(call: Call) -> dict[str, Any]:
    """Return the instances of a managed group: those in its zone whose names begin with its base name."""
    manager = MANAGERS.need(call)
    folder = f"{manager.path.partition('/instanceGroupManagers/')[0]}/instances/"
    front = f"{folder}{manager.document['baseInstanceName']}-"
    found = [
        {
            "instance": each.document["selfLink"],
            "id": each.document["id"],
            "instanceStatus": each.document.get("status", "RUNNING"),
            "currentAction": "NONE",
        }
        for each in store.within(call.world, "compute", front)
    ]
    items, token = paging.page(found, call)
    return {"managedInstances": items, **({"nextPageToken": token} if token else {})}
