"""Managed disks, which a cluster's controllers make for claims."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.services.compute.placement import ComputeKind
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"disk-create": 5, "disk-delete": 5})

TYPE = "Microsoft.Compute/disks"
_MODELS = "azure.mgmt.compute.models"


@register
class Disks(ComputeKind):
    """Disks."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = ("2026-03-02", "2025-01-02", "2024-03-02")
    model = f"{_MODELS}:Disk"
    patch_model = f"{_MODELS}:DiskUpdate"
    create_time = update_time = "disk-create"
    delete_time = "disk-delete"
    create_status = update_status = HTTPStatus.ACCEPTED
    polled_by: ClassVar[Sequence[str]] = ("azure-async", "location")

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse an empty disk without a size, and a smaller size than before."""
        properties = body.get("properties") or {}
        size = int(properties.get("diskSizeGB") or 0)
        if (properties.get("creationData") or {}).get("createOption") == "Empty" and size < 1:
            raise ArmError(
                "InvalidParameter", f"Required parameter 'diskSizeGB' of {call.path.name} is missing."
            )
        if old is not None and size < int(old.properties.get("diskSizeGB") or 0):
            raise ArmError(
                "OperationNotAllowed",
                f"Disk {call.path.name} of size {old.properties['diskSizeGB']} GB cannot be resized to "
                f"{size} GB.",
                status=HTTPStatus.CONFLICT,
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults."""
        complete(resource.document, call.world.now())

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while a machine uses it."""
        if machine := resource.document.get("managedBy"):
            raise ArmError(
                "OperationNotAllowed",
                f"Disk {resource.name} is attached to VM {machine}.",
                status=HTTPStatus.CONFLICT,
            )


def complete(document: dict[str, Any], now: float) -> None:
    """Fill in what Azure adds to a disk."""
    document.setdefault("sku", {"name": "StandardSSD_LRS"})
    document["sku"]["tier"] = document["sku"]["name"].partition("_")[0]
    properties = document["properties"]
    properties.setdefault("timeCreated", as_datetime(now).isoformat())
    properties["diskState"] = "Attached" if document.get("managedBy") else "Unattached"
