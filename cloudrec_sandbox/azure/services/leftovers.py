"""What the controllers inside a cluster create, and leave behind if the cluster is deleted first.

`leave` of /_control: {"group": NAME, "cluster": NAME, "kinds": [...]} makes one of each kind now, in the
group and with the tags of the cluster's controllers: disk, public-ip, load-balancer, network-interface (in
its first subnet, or the one named by "subnet": ID), role-assignment (of a principal that no longer exists),
private-dns-zone, log-workspace, container (deleted already, but kept; in the group's first account).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.azure.arm import references
from cloudrec_sandbox.azure.arm.paths import GROUP, SUBSCRIPTION
from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.authorization.access import grant
from cloudrec_sandbox.azure.services.compute import disks
from cloudrec_sandbox.azure.services.monitoring import WORKSPACE
from cloudrec_sandbox.azure.services.network import dns, interfaces
from cloudrec_sandbox.azure.services.storage import blob_service, containers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.core.world import World

_READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"


@dataclass
class Left:
    """The orphaned resources so far, as "kind:id"."""

    rows: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The group and the cluster of an orphaned resource."""

    group: Resource
    cluster: str
    subnet: str

    def id(self, kind: str, name: str) -> str:
        """Return the id of a resource in the group."""
        return f"{self.group.id}/providers/{kind}/{name}"


def _add(world: World, place: Place, kind: str, name: str, **more: Any) -> Resource:  # noqa: ANN401 - JSON
    document = {
        "id": place.id(kind, name),
        "name": name,
        "type": kind,
        "location": place.group.location,
        "properties": {"provisioningState": "Succeeded"},
        **more,
    }
    now = world.now()
    made = Resource(id=document["id"], type=kind, document=document, made_at=now, changed_at=now)
    store(world).add(made)
    return made


def _disk(world: World, place: Place) -> str:
    """Make the disk of a claim whose policy keeps it."""
    claim = f"pvc-{uuid4()}"
    tags = {
        "k8s-azure-created-by": "kubernetes-azure-dd",
        "kubernetes.io-created-for-pv-name": claim,
        "kubernetes.io-created-for-pvc-namespace": "default",
    }
    properties = {
        "provisioningState": "Succeeded",
        "creationData": {"createOption": "Empty"},
        "diskSizeGB": 20,
    }
    made = _add(world, place, disks.TYPE, claim, tags=tags, properties=properties)
    disks.complete(made.document, world.now())
    return made.id


def _address(world: World, place: Place) -> str:
    tags = {"k8s-azure-cluster-name": place.cluster, "k8s-azure-service": "default/web"}
    properties = {
        "provisioningState": "Succeeded",
        "publicIPAllocationMethod": "Static",
        "publicIPAddressVersion": "IPv4",
        "ipAddress": "20.9.9.9",
    }
    sku = {"name": "Standard", "tier": "Regional"}
    name = f"kubernetes-{secrets.token_hex(16)}"
    return _add(world, place, references.ADDRESS, name, tags=tags, properties=properties, sku=sku).id


def _balancer(world: World, place: Place) -> str:
    """Make a load balancer with its own public address."""
    address = _address(world, place)
    frontend = {"name": secrets.token_hex(16), "properties": {"publicIPAddress": {"id": address}}}
    properties = {"provisioningState": "Succeeded", "frontendIPConfigurations": [frontend]}
    sku = {"name": "Standard", "tier": "Regional"}
    return _add(world, place, references.BALANCER, "kubernetes", properties=properties, sku=sku).id


def _interface(world: World, place: Place) -> str:
    row = {"name": "ipconfig1", "properties": {"subnet": {"id": place.subnet}}}
    properties = {"provisioningState": "Succeeded", "ipConfigurations": [row]}
    name = f"aks-gpu-{secrets.token_hex(4)}-nic"
    made = _add(world, place, references.INTERFACE, name, properties=properties)
    interfaces.attach(world, place.subnet, made.id)
    return made.id


def _assignment(world: World, place: Place) -> str:
    # by_us=False: /_control/state lists it, as it lists what calls have made.
    return grant(world, str(uuid4()), _READER, place.group.id, by_us=False).id


def _zone(world: World, place: Place) -> str:
    name = f"{uuid4()}.privatelink.{place.group.location}.azmk8s.io"
    return _add(world, place, dns.ZONE, name, location="global").id


def _workspace(world: World, place: Place) -> str:
    name = f"DefaultWorkspace-{SUBSCRIPTION}-EUS"
    return _add(world, place, WORKSPACE, name, properties={"provisioningState": "Succeeded"}).id


def _container(world: World, place: Place) -> str:
    account = next(store(world).of_type(blob_service.ACCOUNT, place.group.id), None)
    if account is None:
        raise ValueError(f"there is no storage account in {place.group.name} to leave a container in")
    id_ = f"{account.id}/blobServices/default/containers/old-{secrets.token_hex(4)}"
    document = {"id": id_, "name": id_.rpartition("/")[2], "type": containers.TYPE, "properties": {}}
    now = world.now()
    containers.bury(
        world,
        Resource(id=id_, type=containers.TYPE, document=document, made_at=now, changed_at=now),
        days=7,
    )
    return id_


_MAKERS: dict[str, Callable[[World, Place], str]] = {
    "disk": _disk,
    "public-ip": _address,
    "load-balancer": _balancer,
    "network-interface": _interface,
    "role-assignment": _assignment,
    "private-dns-zone": _zone,
    "log-workspace": _workspace,
    "container": _container,
}


def _leave(world: World, wish: dict[str, Any]) -> None:
    kinds = list(wish.get("kinds", []))
    if unknown := sorted(set(kinds) - set(_MAKERS)):
        raise ValueError(f"nothing leaves a {', '.join(unknown)}; there are: {', '.join(_MAKERS)}")
    group = store(world).find(f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{wish.get('group')}")
    if group is None or group.type != GROUP:
        raise ValueError(f"there is no group {wish.get('group')!r} to leave anything in")
    subnet = next(store(world).of_type(references.SUBNET, group.id), None)
    named = str(wish.get("subnet") or (subnet.id if subnet else ""))
    if "network-interface" in kinds and store(world).find(named) is None:
        raise ValueError(f"there is no subnet {named!r} to leave an interface in")
    place = Place(group=group, cluster=str(wish.get("cluster") or "kubernetes"), subnet=named)
    world.state(Left).rows += [f"{kind}:{_MAKERS[kind](world, place)}" for kind in kinds]


setting("leave", read=lambda world: world.state(Left).rows, write=_leave)
