"""Data repository associations, which link folders to S3. Durations: dra-create, dra-delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services.fsx.store import (
    Made,
    Store,
    file_system,
    made_before,
    page,
    refuse,
    request_of,
    store,
)
from cloudrec_sandbox.aws.services.s3 import is_foreign
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"dra-create": 120, "dra-delete": 60})

# Botocore's model of FSx: at most 8 for a file system, Lustre 2.12 or newer, every type but SCRATCH_1.
_MOST = 8
_OLDEST = 2.12  # of Lustre
_CHUNK = 1024  # MiB, the chunk size of an imported file


@operation("fsx", "CreateDataRepositoryAssociation")
def create(call: Call) -> dict[str, Any]:
    """Make an association, or return the token's; an unusable bucket shows later, as MISCONFIGURED."""
    kept = store(call)
    if row := made_before(call, kept.associations):
        return {"Association": row}
    wanted = call.params
    _check(call)
    name, file_system_id = f"dra-{uuid4().hex[:17]}", wanted["FileSystemId"]
    row = {
        "AssociationId": name,
        "ResourceARN": f"arn:aws:fsx:{call.region}:{call.account}:association/{file_system_id}/{name}",
        "FileSystemId": file_system_id,
        "FileSystemPath": wanted["FileSystemPath"],
        "DataRepositoryPath": wanted["DataRepositoryPath"],
        "BatchImportMetaDataOnCreate": wanted.get("BatchImportMetaDataOnCreate", False),
        "ImportedFileChunkSize": wanted.get("ImportedFileChunkSize", _CHUNK),
        "S3": wanted.get("S3", {}),
        "Lifecycle": "CREATING",
        "Tags": wanted.get("Tags", []),
        "CreationTime": as_datetime(call.world.now()),
    }
    kept.associations[name] = Made(wanted.get("ClientRequestToken", ""), request_of(call), row)
    call.world.after(call.world.duration("dra-create"), _settle, call.region, name)
    return {"Association": row}


def _check(call: Call) -> None:
    wanted, kept = call.params, store(call)
    row = file_system(call, wanted["FileSystemId"]).row
    lustre = row["LustreConfiguration"]
    if lustre["DeploymentType"] == "SCRATCH_1" or float(row["FileSystemTypeVersion"]) < _OLDEST:
        raise refuse(
            "UnsupportedOperation",
            f"Data repository associations need Lustre {_OLDEST} or newer and no SCRATCH_1; the file system "
            f"is {lustre['DeploymentType']} with {row['FileSystemTypeVersion']}.",
        )
    if row["Lifecycle"] != "AVAILABLE":
        raise refuse("BadRequest", f"The file system is {row['Lifecycle']}, not AVAILABLE.")
    if "ImportPath" in lustre:
        raise refuse("BadRequest", "The file system was created with an ImportPath.")
    if not str(wanted.get("FileSystemPath", "")).startswith("/"):
        raise refuse("BadRequest", "FileSystemPath must start with '/'.")
    if not wanted["DataRepositoryPath"].startswith("s3://"):
        raise refuse("BadRequest", "DataRepositoryPath must start with 's3://'.")
    others = [
        made.row for made in kept.associations.values() if made.row["FileSystemId"] == wanted["FileSystemId"]
    ]
    if len(others) >= _MOST:
        raise refuse(
            "ServiceLimitExceeded",
            f"A file system has at most {_MOST} data repository associations.",
            Limit="DATA_REPOSITORY_ASSOCIATION_COUNT",
        )
    for other in others:
        for member in ("FileSystemPath", "DataRepositoryPath"):
            if _overlap(other[member], wanted[member]):
                raise refuse(
                    "BadRequest",
                    f"{member} {wanted[member]} overlaps {other[member]} of {other['AssociationId']}.",
                )


def _overlap(one: str, other: str) -> bool:
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)


def _settle(world: World, region: str, name: str) -> None:
    made = world.state(Store, region).associations.get(name)
    if made is None or made.row["Lifecycle"] != "CREATING":
        return
    bucket = made.row["DataRepositoryPath"].removeprefix("s3://").partition("/")[0]
    if fault := _fault(world, region, bucket):
        made.row |= {"Lifecycle": "MISCONFIGURED", "FailureDetails": {"Message": fault}}
    else:
        made.row["Lifecycle"] = "AVAILABLE"


def _fault(world: World, region: str, bucket: str) -> str:
    """Return what is wrong with a bucket; empty if nothing is."""
    found = world.backend("s3", "aws").buckets.get(bucket)
    if is_foreign(world, bucket) or found is None:
        return f"Amazon FSx is unable to access the S3 bucket {bucket}."
    if found.region_name != region:
        return f"The S3 bucket {bucket} is in {found.region_name}, the file system in {region}."
    return ""


@operation("fsx", "DescribeDataRepositoryAssociations")
def describe(call: Call) -> dict[str, Any]:
    """Return the requested associations, or all, or those of some file systems."""
    kept = store(call).associations
    rows = []
    for name in call.params.get("AssociationIds") or list(kept):
        if name not in kept:
            raise _missing(name)
        rows.append(kept[name].row)
    for wanted in call.params.get("Filters", []):
        if wanted["Name"] == "file-system-id":
            rows = [row for row in rows if row["FileSystemId"] in wanted["Values"]]
    return page(call, "Associations", rows)


def _missing(name: str) -> Exception:
    return refuse(
        "DataRepositoryAssociationNotFound", f"Data repository association '{name}' does not exist."
    )


@operation("fsx", "DeleteDataRepositoryAssociation")
def delete(call: Call) -> dict[str, Any]:
    """Begin to delete an association."""
    name = call.params["AssociationId"]
    made = store(call).associations.get(name)
    if made is None:
        raise _missing(name)
    if made.row["Lifecycle"] != "DELETING":
        made.row["Lifecycle"] = "DELETING"
        call.world.after(call.world.duration("dra-delete"), _finish, call.region, name)
    data = call.params.get("DeleteDataInFileSystem", False)
    return {"AssociationId": name, "Lifecycle": "DELETING", "DeleteDataInFileSystem": data}


def _finish(world: World, region: str, name: str) -> None:
    world.state(Store, region).associations.pop(name, None)
