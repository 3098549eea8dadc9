"""Snapshots, images and machine images: copies of disks and machines, which outlive them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Image, MachineImage, Snapshot

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources.places import region_of
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_MULTI = ("asia", "eu", "us")
_EACH_GB = 10**9  # the stored bytes of a GB of a disk that is full

SNAPSHOTS = Collection(
    name="snapshots", noun="snapshot", scope="global", message=Snapshot, refers=("sourceDisk",)
)
IMAGES = Collection(name="images", noun="image", scope="global", message=Image)
MACHINE_IMAGES = Collection(
    name="machineImages",
    noun="machineImage",
    scope="global",
    message=MachineImage,
    refers=("sourceInstance",),
)


def _check_snapshot(call: Call, document: dict[str, Any]) -> None:
    if not document.get("sourceDisk"):
        raise _required("sourceDisk")
    size = _size(call, document)
    _place(document, document["sourceDisk"])
    document |= {"diskSizeGb": size, "storageBytes": str(int(size) * _EACH_GB), "status": "READY"}


def _check_image(call: Call, document: dict[str, Any]) -> None:
    given = [
        name for name in ("sourceDisk", "sourceImage", "sourceSnapshot", "rawDisk") if document.get(name)
    ]
    if len(given) != 1:
        raise _required("sourceDisk")
    if given == ["sourceDisk"]:
        document["diskSizeGb"] = _size(call, document)
        _place(document, document["sourceDisk"])
    document["status"] = "READY"


def _check_machine_image(call: Call, document: dict[str, Any]) -> None:
    del call
    if not document.get("sourceInstance"):
        raise _required("sourceInstance")
    _place(document, document["sourceInstance"])
    document["status"] = "READY"


def _size(call: Call, document: dict[str, Any]) -> str:
    disk = references.refer(call, document, "sourceDisk")
    return str(disk.document["sizeGb"]) if disk else "0"


def _place(document: dict[str, Any], source: str) -> None:
    """Store it where the client says, or near its source."""
    words = source.split("/")
    near = (
        region_of(words[words.index("zones") + 1]) if "zones" in words else words[words.index("regions") + 1]
    )
    places = document.setdefault("storageLocations", [near])
    if len(places) != 1 or (places[0] not in _MULTI and not region_of(places[0])):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'resource.storageLocations': '{', '.join(places)}'. One region or"
            " multi-region is needed.",
        )


def _required(field: str) -> GcpError:
    return GcpError(
        "INVALID_ARGUMENT", f"Required field 'resource.{field}' not specified", classic="required"
    )


for _collection, _check in (
    (SNAPSHOTS, _check_snapshot),
    (IMAGES, _check_image),
    (MACHINE_IMAGES, _check_machine_image),
):
    collections.reads(_collection, aggregated=False)
    changes.inserts(_collection, _check)
    changes.deletes(_collection)
