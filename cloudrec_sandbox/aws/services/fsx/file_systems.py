"""File systems: their lifecycle, their interfaces, their tags.

Durations: fsx-create, fsx-delete. `fsx_outcome` of /_control: the state that file systems made from now on
reach: AVAILABLE (default), FAILED or MISCONFIGURED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.registry import durations, operation, setting
from cloudrec_sandbox.aws.services import quotas
from cloudrec_sandbox.aws.services.ec2.network.interfaces import attach_service_interface, remove
from cloudrec_sandbox.aws.services.fsx.checks import check, version_of
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
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"fsx-create": 480, "fsx-delete": 300})

_OUTCOMES = ("AVAILABLE", "FAILED", "MISCONFIGURED")
_INTERFACES = 2  # one for the metadata server, one for the storage server


@dataclass
class Outcome:
    """The state that new file systems reach."""

    lifecycle: str = "AVAILABLE"


def _write_outcome(world: World, lifecycle: str) -> None:
    if lifecycle not in _OUTCOMES:
        raise ValueError(f"fsx_outcome {lifecycle!r}; there are: {', '.join(_OUTCOMES)}")
    world.state(Outcome).lifecycle = lifecycle


setting("fsx_outcome", read=lambda world: world.state(Outcome).lifecycle, write=_write_outcome)


@operation("fsx", "CreateFileSystem")
def create(call: Call) -> dict[str, Any]:
    """Make a file system, or return the one that the token has made."""
    kept = store(call)
    # botocore's model: the same token with the same parameters returns what the first call made.
    if row := made_before(call, kept.file_systems):
        return {"FileSystem": row}
    check(call)
    _check_quota(call, kept)
    name = f"fs-{uuid4().hex[:17]}"
    row = _row(call, name)
    kept.file_systems[name] = Made(call.params.get("ClientRequestToken", ""), request_of(call), row)
    call.world.after(call.world.duration("fsx-create"), _settle, call.region, name)
    return {"FileSystem": row}


def _check_quota(call: Call, kept: Store) -> None:
    scratch = _is_scratch(call.params.get("LustreConfiguration", {}))
    quota = quotas.LUSTRE_SCRATCH if scratch else quotas.LUSTRE_PERSISTENT
    rows = [made.row["LustreConfiguration"] for made in kept.file_systems.values()]
    if sum(_is_scratch(lustre) is scratch for lustre in rows) >= quotas.limit(call.world, quota):
        raise refuse(
            "ServiceLimitExceeded", "You have reached your file system limit.", Limit="FILE_SYSTEM_COUNT"
        )


def _is_scratch(lustre: dict[str, Any]) -> bool:
    return str(lustre.get("DeploymentType", "SCRATCH_1")).startswith("SCRATCH")


def _row(call: Call, name: str) -> dict[str, Any]:
    wanted, ec2 = call.params, call.backend("ec2")
    subnet_id = wanted["SubnetIds"][0]
    vpc_id = ec2.get_subnet(subnet_id).vpc_id
    lustre = {
        "DeploymentType": "SCRATCH_1",
        "CopyTagsToBackups": False,
        "DataCompressionType": "NONE",
        "WeeklyMaintenanceStartTime": "4:07:00",
        **wanted.get("LustreConfiguration", {}),
        # botocore's model: SCRATCH_1 is always mounted as "fsx"; all others have a name of random characters.
        "MountName": "fsx" if _is_scratch_1(wanted) else uuid4().hex[:8],
    }
    groups = wanted.get("SecurityGroupIds") or [ec2.get_default_security_group(vpc_id).id]
    interfaces = [
        attach_service_interface(
            ec2, subnet_id, groups, description=f"Created by Amazon FSx for {name}", requester="amazon-fsx"
        ).id
        for _ in range(_INTERFACES)
    ]
    row = {
        "OwnerId": call.account,
        "CreationTime": as_datetime(call.world.now()),
        "FileSystemId": name,
        "FileSystemType": "LUSTRE",
        "Lifecycle": "CREATING",
        "StorageType": wanted.get("StorageType", "SSD"),
        "VpcId": vpc_id,
        "SubnetIds": [subnet_id],
        "NetworkInterfaceIds": interfaces,
        "DNSName": f"{name}.fsx.{call.region}.amazonaws.com",
        "ResourceARN": f"arn:aws:fsx:{call.region}:{call.account}:file-system/{name}",
        "Tags": wanted.get("Tags", []),
        "LustreConfiguration": lustre,
        "FileSystemTypeVersion": version_of(wanted),
    }
    return row | {key: wanted[key] for key in ("StorageCapacity", "KmsKeyId") if key in wanted}


def _is_scratch_1(wanted: dict[str, Any]) -> bool:
    return bool(wanted.get("LustreConfiguration", {}).get("DeploymentType", "SCRATCH_1") == "SCRATCH_1")


def _settle(world: World, region: str, name: str) -> None:
    made = world.state(Store, region).file_systems.get(name)
    if made is None or made.row["Lifecycle"] != "CREATING":
        return
    made.row["Lifecycle"] = world.state(Outcome).lifecycle
    if made.row["Lifecycle"] != "AVAILABLE":
        made.row["FailureDetails"] = {"Message": "The file system could not be created; delete it and retry."}


@operation("fsx", "DescribeFileSystems")
def describe(call: Call) -> dict[str, Any]:
    """Return the requested file systems, or all."""
    names = call.params.get("FileSystemIds") or list(store(call).file_systems)
    return page(call, "FileSystems", [file_system(call, name).row for name in names])


@operation("fsx", "DeleteFileSystem")
def delete(call: Call) -> dict[str, Any]:
    """Begin to delete a file system with its associations; its interfaces stay until it is gone."""
    name = call.params["FileSystemId"]
    row = file_system(call, name).row
    final = call.params.get("LustreConfiguration", {}).get("SkipFinalBackup") is False
    # Scratch file systems have no backups, so none at the end either.
    if final and _is_scratch(row["LustreConfiguration"]):
        raise refuse("BadRequest", "Final backups are not supported by scratch file systems.")
    if row["Lifecycle"] != "DELETING":
        row["Lifecycle"] = "DELETING"
        for made in store(call).associations.values():
            if made.row["FileSystemId"] == name:
                made.row["Lifecycle"] = "DELETING"
        call.world.after(call.world.duration("fsx-delete"), _finish, call.region, name)
    return {"FileSystemId": name, "Lifecycle": "DELETING"}


def _finish(world: World, region: str, name: str) -> None:
    kept, ec2 = world.state(Store, region), world.backend("ec2", region)
    remove(ec2, kept.file_systems.pop(name).row["NetworkInterfaceIds"])
    for gone in [key for key, made in kept.associations.items() if made.row["FileSystemId"] == name]:
        del kept.associations[gone]


def _by_arn(call: Call) -> dict[str, Any]:
    arn, kept = call.params["ResourceARN"], store(call)
    for made in (*kept.file_systems.values(), *kept.associations.values()):
        if made.row["ResourceARN"] == arn:
            return made.row
    raise refuse("ResourceNotFound", f"Resource '{arn}' does not exist.", ResourceARN=arn)


@operation("fsx", "ListTagsForResource")
def list_tags(call: Call) -> dict[str, Any]:
    """Return the tags of a file system or an association."""
    return page(call, "Tags", _by_arn(call)["Tags"])


@operation("fsx", "TagResource")
def tag(call: Call) -> dict[str, Any]:
    """Add tags, or change them."""
    row, new = _by_arn(call), call.params["Tags"]
    changed = {tag["Key"] for tag in new}
    row["Tags"] = [tag for tag in row["Tags"] if tag["Key"] not in changed] + new
    return {}


@operation("fsx", "UntagResource")
def untag(call: Call) -> dict[str, Any]:
    """Remove tags."""
    row, keys = _by_arn(call), call.params["TagKeys"]
    row["Tags"] = [tag for tag in row["Tags"] if tag["Key"] not in keys]
    return {}
