"""Instances, their disks, groups and templates: GKE makes them, and clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import (
    Disk,
    Instance,
    InstanceGroup,
    InstanceGroupManager,
    InstanceTemplate,
)

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.resources.operations import Failure
from cloudrec_sandbox.gcp.resources.places import ZONES
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.capacity import machines
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

_DEFAULT_GB = {"pd-standard": 500, "hyperdisk-balanced": 100}
_USUAL_GB = 100

_COPIES = 2  # zones of a regional disk

INSTANCES = Collection(name="instances", noun="instance", scope="zone", message=Instance)
DISKS = Collection(name="disks", noun="disk", scope="zone", message=Disk)
REGION_DISKS = Collection(
    name="disks", noun="disk", scope="region", front="regionDisks", right="disks", message=Disk
)
MANAGERS = Collection(
    name="instanceGroupManagers",
    noun="instanceGroupManager",
    scope="zone",
    message=InstanceGroupManager,
    refers=("instanceTemplate",),
)
INSTANCE_GROUPS = Collection(
    name="instanceGroups",
    noun="instanceGroup",
    scope="zone",
    message=InstanceGroup,
    refers=("network", "subnetwork"),
)
TEMPLATES = Collection(
    name="instanceTemplates", noun="instanceTemplate", scope="global", message=InstanceTemplate
)


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


def _check_instance(call: Call, document: dict[str, Any]) -> None:
    """Check a machine's type, boot disk and networks, and complete the links."""
    zone = call.params["zone"]
    kind = str(document.get("machineType", "")).rpartition("/")[2]
    if machines.find(kind, zone) is None:
        raise _invalid("machineType", kind, "The referenced resource does not exist.")
    boot = [disk for disk in document.get("disks", []) if disk.get("boot")]
    if len(boot) != 1 or not (boot[0].get("source") or boot[0].get("initializeParams")):
        raise _invalid("disks", "", "Exactly one boot disk must be specified.")
    _check_cards(call, document, ZONES[zone])
    front = f"projects/{call.project}/zones/{zone}"
    document["machineType"] = store.link(f"{front}/machineTypes/{kind}")
    document.setdefault("scheduling", {}).setdefault("provisioningModel", "STANDARD")
    document["status"] = "PROVISIONING"
    if boot[0].get("source"):
        references.refer(call, boot[0], "source", "resource.disks[0]")
    elif store.find(call.world, "compute", f"{front}/disks/{document['name']}"):
        raise GcpError("ALREADY_EXISTS", f"The resource '{front}/disks/{document['name']}' already exists")
    references.stamp(document, "labelFingerprint")


def _check_cards(call: Call, document: dict[str, Any], region: str) -> None:
    """Check the network interfaces; a network with custom subnetworks needs one of them."""
    cards = document.get("networkInterfaces", [])
    if not cards:
        raise _invalid("networkInterfaces", "", "At least one network interface is required.")
    for place, card in enumerate(cards):
        where = f"resource.networkInterfaces[{place}]"
        subnet = references.refer(call, card, "subnetwork", where)
        if subnet is None:
            raise _invalid(
                f"networkInterfaces[{place}]",
                card.get("network", ""),
                "Network interface must specify a subnet if the network resource is in custom subnet mode.",
            )
        if f"/regions/{region}/" not in subnet.path:
            raise _invalid(f"networkInterfaces[{place}].subnetwork", subnet.path, "It is in another region.")
        card["network"] = subnet.document["network"]


def started(world: World, path: str) -> Failure | None:
    """End the insert of an instance: it runs, with its boot disk; or there is no such machine."""
    document = store.need(world, "compute", path).document
    words = path.split("/")
    shortage = machines.claim(
        world,
        path,
        project=words[1],
        zone=words[3],
        machine_type=document["machineType"].rpartition("/")[2],
        spot=document["scheduling"]["provisioningModel"] == "SPOT",
        count=1,
        disk_gb=0,
    )
    if shortage:
        return Failure(shortage.code, shortage.message)
    document["status"] = "RUNNING"
    for disk in document["disks"]:
        if wanted := disk.pop("initializeParams", None):
            disk["source"] = store.link(_boot_disk(world, path, wanted))
    return None


def _boot_disk(world: World, path: str, wanted: dict[str, Any]) -> str:
    """Make an instance's boot disk, which has the instance's name; return its path."""
    front, _, name = path.partition("/instances/")
    kind = str(wanted.get("diskType") or "pd-standard").rpartition("/")[2]
    document = {
        "type": store.link(f"{front}/diskTypes/{kind}"),
        "sizeGb": str(wanted.get("diskSizeGb") or 10),
        "status": "READY",
        "zone": store.link(front),
        **({"labels": wanted["labels"]} if wanted.get("labels") else {}),
    }
    disk = f"{front}/disks/{name}"
    store.identify(world, document, disk, "compute#disk")
    store.add(world, "compute", "disks", disk, document)
    return disk


def stopped(world: World, path: str) -> None:
    """Remove with an instance the disks that are deleted with it."""
    machines.release(world, path)
    for disk in store.need(world, "compute", path).document.get("disks", []):
        if disk.get("autoDelete") and disk.get("source"):
            store.remove(world, "compute", store.path_of(disk["source"]))


def _check_template(call: Call, document: dict[str, Any]) -> None:
    del call
    properties = document.get("properties", {})
    for field in ("machineType", "disks", "networkInterfaces"):
        if not properties.get(field):
            raise _invalid(f"properties.{field}", "", "It is required.")


def _check_manager(call: Call, document: dict[str, Any]) -> None:
    """Check a managed group; this stand-in makes machines for GKE's groups only."""
    if not document.get("instanceTemplate"):
        raise _invalid("instanceTemplate", "", "It is required.")
    if document.get("targetSize"):
        text = "this stand-in has no groups of clients that make machines"
        raise GcpError("UNIMPLEMENTED", text)
    document["targetSize"] = 0
    document.setdefault("baseInstanceName", document["name"])
    document["status"] = {"isStable": True}
    group = f"projects/{call.project}/zones/{call.params['zone']}/instanceGroups/{document['name']}"
    document["instanceGroup"] = store.link(group)


def grouped(world: World, path: str) -> None:
    """End the insert of a managed group: the group of its machines has its name."""
    store.need(world, "compute", path).hidden["errors"] = []
    group = path.replace("/instanceGroupManagers/", "/instanceGroups/")
    document = {"size": 0, "zone": store.link(path.partition("/instanceGroupManagers/")[0])}
    store.identify(world, document, group, "compute#instanceGroup")
    store.add(world, "compute", "instanceGroups", group, document)


def ungrouped(world: World, path: str) -> None:
    """Remove the group of machines with its manager."""
    store.remove(world, "compute", path.replace("/instanceGroupManagers/", "/instanceGroups/"))


def _check_disk(call: Call, document: dict[str, Any]) -> None:
    kind = str(document.get("type") or "pd-standard").rpartition("/")[2]
    if not kind.startswith(("pd-", "hyperdisk-")):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'resource.type': '{document['type']}'. The referenced diskType"
            " resource cannot be found.",
        )
    places = [store.path_of(zone).rpartition("/")[2] for zone in document.get("replicaZones", [])]
    region = call.params.get("region", "")
    if region and (len(set(places)) != _COPIES or any(ZONES.get(zone) != region for zone in places)):
        raise _invalid("replicaZones", ", ".join(places), f"It names {_COPIES} zones of the region.")
    if places:
        document["replicaZones"] = [store.link(f"projects/{call.project}/zones/{zone}") for zone in places]
    place = f"regions/{region}" if region else f"zones/{call.params['zone']}"
    document["type"] = store.link(f"projects/{call.project}/{place}/diskTypes/{kind}")
    document.setdefault("sizeGb", str(_DEFAULT_GB.get(kind, _USUAL_GB)))
    document.setdefault("physicalBlockSizeBytes", "4096")
    document["status"] = "READY"
    references.stamp(document, "labelFingerprint")


for _collection in (INSTANCES, DISKS, REGION_DISKS, MANAGERS, INSTANCE_GROUPS, TEMPLATES):
    collections.reads(_collection)
for _collection in (DISKS, REGION_DISKS):
    changes.inserts(_collection, _check_disk)
    changes.deletes(_collection)
changes.inserts(INSTANCES, _check_instance, started)
changes.deletes(INSTANCES, finish=stopped)
changes.inserts(MANAGERS, _check_manager, grouped)
changes.deletes(MANAGERS, finish=ungrouped)
changes.inserts(INSTANCE_GROUPS)
changes.deletes(INSTANCE_GROUPS)
changes.inserts(TEMPLATES, _check_template)
changes.deletes(TEMPLATES)


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


@rest(
    "compute",
    "instanceGroupManagers.listErrors",
    "GET",
    MANAGERS.url + "/{name}/listErrors",
    query=paging.QUERY,
    permission="compute.instanceGroupManagers.get",
)
def errors_of(call: Call) -> dict[str, Any]:
    """Return why a managed group cannot make the machines that it wants."""
    items, token = paging.page(MANAGERS.need(call).hidden.get("errors") or [], call)
    return {"items": items, **({"nextPageToken": token} if token else {})}
