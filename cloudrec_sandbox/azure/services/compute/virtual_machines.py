"""Single machines, with the interfaces that they need and the disk that Azure makes for each."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import INTERFACE, resolve
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, region_of, store
from cloudrec_sandbox.azure.services.compute import disks, machines
from cloudrec_sandbox.azure.services.compute.placement import ComputeKind
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Compute/virtualMachines"
SPOT = "Spot"
_DISK_GB = 30  # of a Linux image

durations({"machine-create": 30, "machine-delete": 30})


@register
class VirtualMachines(ComputeKind):
    """Machines. A machine's interfaces and disk stay when it is deleted, as by Azure's default."""

    type = TYPE
    model = "azure.mgmt.compute.models:VirtualMachine"
    name_rule = r"[A-Za-z0-9](?:[\w.-]{0,62}\w)?"
    create_time = update_time = "machine-create"
    delete_time = "machine-delete"
    polled_by: ClassVar[Sequence[str]] = ("azure-async",)

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the interfaces, the size, the quota and the stock."""
        properties = body.get("properties") or {}
        for member in ("hardwareProfile", "storageProfile", "networkProfile"):
            if not properties.get(member):
                raise ArmError("InvalidParameter", f"Required parameter '{member}' is missing (null).")
        used = list(_interfaces(properties))
        if not used:
            raise ArmError(
                "InvalidParameter",
                f"Virtual machine {call.path.name} must have at least one network interface.",
            )
        for id_ in used:
            found = resolve(call.world, id_, INTERFACE, owner=call.path.text, region=region_of(body))
            user = (found.properties.get("virtualMachine") or {}).get("id") or call.path.text
            if user.lower() != call.path.key:
                raise ArmError(
                    "NicInUse",
                    f"Network Interface {id_} is used by existing resource {user}. See aka.ms/nic.",
                )
        shortage = machines.claim(
            call.world,
            call.path.text,
            size=str(properties["hardwareProfile"].get("vmSize")),
            region=region_of(body),
            zones=list(body.get("zones") or []),
            spot=properties.get("priority") == SPOT,
            count=1,
        )
        if shortage is not None:
            raise ArmError(shortage.code, shortage.message, status=HTTPStatus.CONFLICT)

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission to use each interface."""
        for id_ in _interfaces(body.get("properties") or {}):
            yield f"{INTERFACE}/join/action", id_

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Attach the interfaces, and make the disk."""
        properties, now = resource.properties, call.world.now()
        properties.setdefault("timeCreated", as_datetime(now).isoformat())
        properties["vmId"] = str(uuid5(NAMESPACE_URL, f"{resource.id}@{resource.made_at}"))
        for id_ in _interfaces(properties):
            found = store(call.world).find(id_)
            if found is not None:
                found.properties["virtualMachine"] = {"id": resource.id}
        profile = properties["storageProfile"].setdefault("osDisk", {"createOption": "FromImage"})
        name = profile.setdefault("name", f"{resource.name}_OsDisk_1_{properties['vmId'].replace('-', '')}")
        id_ = f"{resource.id.partition('/providers/')[0]}/providers/{disks.TYPE}/{name}"
        profile.setdefault("managedDisk", {})["id"] = id_
        if store(call.world).find(id_) is not None:
            return
        document = {
            "id": id_,
            "name": name,
            "type": disks.TYPE,
            "location": resource.document["location"],
            "managedBy": resource.id,
            "properties": {
                "provisioningState": "Succeeded",
                "creationData": {"createOption": "FromImage"},
                "diskSizeGB": profile.get("diskSizeGB") or _DISK_GB,
            },
        }
        disks.complete(document, now)
        store(call.world).add(
            Resource(id=id_, type=disks.TYPE, document=document, made_at=now, changed_at=now)
        )

    def fail(self, world: World, resource: Resource, operation: object) -> None:
        """Release the machine."""
        machines.release(world, resource.id)

    def removed(self, world: World, resource: Resource) -> None:
        """Release the machine; detach what it used."""
        machines.release(world, resource.id)
        for id_ in _interfaces(resource.properties):
            if (found := store(world).find(id_)) is not None:
                found.properties.pop("virtualMachine", None)
        disk = store(world).find(str(resource.properties["storageProfile"]["osDisk"]["managedDisk"]["id"]))
        if disk is not None:
            disk.document.pop("managedBy", None)
            disks.complete(disk.document, world.now())


def _interfaces(properties: dict[str, Any]) -> Iterator[str]:
    for row in (properties.get("networkProfile") or {}).get("networkInterfaces") or []:
        yield str(row.get("id") or "")
