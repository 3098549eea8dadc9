"""What is made from disks and machines, and stays after them: snapshots and images. And public keys."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services.compute import disks
from cloudrec_sandbox.azure.services.compute.placement import ComputeKind
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource

_MODELS = "azure.mgmt.compute.models"
SNAPSHOT = "Microsoft.Compute/snapshots"
IMAGE = "Microsoft.Compute/images"
KEY = "Microsoft.Compute/sshPublicKeys"


@register
class Snapshots(ComputeKind):
    """Snapshots of disks."""

    type = SNAPSHOT
    apis: ClassVar[Sequence[str]] = ("2026-03-02", "2025-01-02", "2024-03-02")
    model = f"{_MODELS}:Snapshot"
    create_time = update_time = "disk-create"
    delete_time = "disk-delete"
    create_status = update_status = HTTPStatus.ACCEPTED
    polled_by: ClassVar[Sequence[str]] = ("azure-async", "location")

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that the disk exists."""
        data = (body.get("properties") or {}).get("creationData") or {}
        if old is None:
            _source(call, str(data.get("sourceResourceId") or ""), body)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take the size of the disk."""
        source = store(call.world).find(str(resource.properties["creationData"].get("sourceResourceId")))
        resource.document.setdefault("sku", {"name": "Standard_LRS", "tier": "Standard"})
        resource.properties.setdefault("timeCreated", as_datetime(call.world.now()).isoformat())
        if source is not None:
            resource.properties.setdefault("diskSizeGB", source.properties.get("diskSizeGB"))


@register
class Images(ComputeKind):
    """Images, made from a managed disk or a snapshot."""

    type = IMAGE
    model = f"{_MODELS}:Image"
    create_time = update_time = "disk-create"
    delete_time = "disk-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that the disk or the snapshot exists."""
        disk = ((body.get("properties") or {}).get("storageProfile") or {}).get("osDisk") or {}
        if not disk.get("osType") or not disk.get("osState"):
            raise ArmError("InvalidParameter", "Required parameter 'image.storageProfile.osDisk' is missing.")
        wanted = (disk.get("managedDisk") or disk.get("snapshot") or {}).get("id")
        _source(call, str(wanted or ""), body)


@register
class PublicKeys(ComputeKind):
    """Public keys for SSH."""

    type = KEY
    model = f"{_MODELS}:SshPublicKeyResource"

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""


def _source(call: Call, id_: str, body: dict[str, Any]) -> None:
    found = store(call.world).find(id_)
    if found is None or found.type not in (disks.TYPE, SNAPSHOT):
        raise ArmError("NotFound", f"Resource {id_} is not found.", status=HTTPStatus.NOT_FOUND)
    if found.location != region_of(body):
        raise ArmError(
            "BadRequest", f"Source resource {id_} is in {found.location}, not in {region_of(body)}."
        )
