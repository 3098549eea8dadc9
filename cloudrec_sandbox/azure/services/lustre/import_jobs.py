"""Import jobs: the names of a container's blobs come into a file system, one job at a time.

The rules are those of azure-managed-lustre's blob-integration.md and create-import-job.md, and of
azure-mgmt-storagecache's ImportJob. The file systems have no files here: a job's status counts its blobs.

Durations: lustre-job (until a job exists), lustre-import (until it is done).
`lustre_imported` of /_control, which cannot be set: the prefixes that were imported, by file system.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations, setting
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, region_of, store
from cloudrec_sandbox.azure.blob import data
from cloudrec_sandbox.azure.services.lustre import checks
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.core.world import World

durations({"lustre-job": 20, "lustre-import": 300})

FILE_SYSTEM = "Microsoft.StorageCache/amlFilesystems"
TYPE = f"{FILE_SYSTEM}/importJobs"
_MODELS = "azure.mgmt.storagecache.models"
_FIXED = ("importPrefixes", "conflictResolutionMode", "maximumErrors")
_RUNNING = ("InProgress", "Cancelling")
_FIRST = "initial"  # Azure's own name of the job of a creation is not documented


@dataclass
class Imported:
    """The prefixes that were imported, by the file system's name."""

    prefixes: dict[str, list[str]] = field(default_factory=dict)


def _read_only(world: World, value: object) -> None:
    del world
    raise ValueError(f"lustre_imported is {value!r}; it cannot be set: create an import job")


setting("lustre_imported", read=lambda world: world.state(Imported).prefixes, write=_read_only)


@register
class ImportJobs(Kind):
    """Import jobs of a file system."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = ("2026-08-01", "2025-07-01", "2024-07-01")
    model = f"{_MODELS}:ImportJob"
    patch_model = f"{_MODELS}:ImportJobUpdate"
    name_rule = r"[0-9a-zA-Z][-0-9a-zA-Z_]{0,78}[0-9a-zA-Z]"
    create_time, update_time, delete_time = "lustre-job", "lustre-job", "lustre-job"
    polled_by: ClassVar[Sequence[str]] = ("azure-async",)

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the file system, and that no other job runs."""
        properties = body.get("properties") or {}
        if old is not None:
            changed = [
                key
                for key in _FIXED
                if properties.get(key, old.properties.get(key)) != old.properties.get(key)
            ]
            if changed:
                raise ArmError(
                    "PropertyChangeNotAllowed",
                    f"Changing property '{', '.join(changed)}' of the import job {old.name} is not allowed.",
                )
            return
        system = store(call.world).find(call.path.parent)
        if system is None:  # the parents are checked before
            raise LookupError(f"{call.path.text} has no file system")
        if system.location != region_of(body):
            raise ArmError(
                "InvalidParameter",
                f"The location {region_of(body)} of an import job must be that of its file system, "
                f"{system.location}.",
            )
        if not _settings(system):
            raise ArmError(
                "InvalidParameter", f"The file system {system.name} has no hsm.settings: it has no container."
            )
        running = [job.name for job in of(call.world, system.id) if _state(job) in _RUNNING]
        if running:
            # "Only one import or export job can run at a time"; the error's code is not documented.
            raise ArmError(
                "Conflict",
                f"Another import or export job of {system.name} is in progress: {running[0]}.",
                status=HTTPStatus.CONFLICT,
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults and the state; an update can cancel it."""
        if old is None:
            _begin(call.world, resource)
            return
        resource.document["properties"] = {**old["properties"], **(body.get("properties") or {})}
        if resource.properties.get("adminStatus") == "Cancel" and _state(resource) in _RUNNING:
            resource.properties["status"]["state"] = "Canceled"

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Import, some time later."""
        if operation.verb == "create":
            world.after(world.duration("lustre-import"), done, resource.id)


def begin_first(world: World, system: Resource) -> None:
    """Make the job of a new file system, which runs on after the creation."""
    settings = _settings(system)
    prefixes = settings.get("importPrefixesInitial") or [settings.get("importPrefix") or "/"]
    id_ = f"{system.id}/importJobs/{_FIRST}"
    properties = {"importPrefixes": prefixes, "provisioningState": "Succeeded"}
    document = {
        "id": id_,
        "name": _FIRST,
        "type": TYPE,
        "location": system.location,
        "properties": properties,
    }
    job = Resource(id=id_, type=TYPE, document=document, made_at=world.now(), changed_at=world.now())
    _begin(world, job)
    store(world).add(job)
    world.after(world.duration("lustre-import"), done, job.id)


def of(world: World, system: str) -> Iterator[Resource]:
    """Yield the jobs of a file system."""
    yield from store(world).of_type(TYPE, under=system)


def done(world: World, id_: str) -> None:
    """End a job: completed, or failed without access or with prefixes that overlap."""
    job = store(world).find(id_)
    if job is None or job.deleting or _state(job) != "InProgress":
        return
    system = store(world).find(job.path.parent)
    if system is None:
        return
    container, prefixes = str(_settings(system)["container"]), list(job.properties["importPrefixes"])
    status = job.properties["status"]
    status["lastCompletionTime"] = as_datetime(world.now()).isoformat()
    if (
        why := _overlap(prefixes)
        or checks.cannot_read(world, container)
        or _outside(world, system, container)
    ):
        status |= {"state": "Failed", "statusMessage": why}
        return
    blobs = [each for each in data.container_of(world, container).blobs.values() if not each.is_folder]
    count = sum(any(f"/{each.name}".startswith(prefix) for prefix in prefixes) for each in blobs)
    status |= {
        "state": "Completed",
        "statusMessage": "",
        "totalBlobsWalked": len(blobs),
        "totalBlobsImported": count,
        "importedFiles": count,
        "totalErrors": 0,
        "totalConflicts": 0,
    }
    world.state(Imported).prefixes.setdefault(system.name, []).extend(prefixes)


def _begin(world: World, job: Resource) -> None:
    for key, value in {
        "adminStatus": "Active",
        "importPrefixes": ["/"],
        "conflictResolutionMode": "Fail",
        "maximumErrors": 0,
    }.items():
        job.properties.setdefault(key, value)
    job.properties["status"] = {
        "state": "InProgress",
        "lastStartedTime": as_datetime(world.now()).isoformat(),
    }


def _state(job: Resource) -> str:
    return str((job.properties.get("status") or {}).get("state") or "")


def _settings(system: Resource) -> dict[str, Any]:
    return dict((system.properties.get("hsm") or {}).get("settings") or {})


def _overlap(prefixes: Sequence[str]) -> str:
    pairs = [(one, other) for one in prefixes for other in prefixes if one is not other]
    twice = next((pair for pair in pairs if pair[1].startswith(pair[0])), None)
    return f"The import prefixes {twice[0]} and {twice[1]} overlap." if twice else ""


def _outside(world: World, system: Resource, container: str) -> str:
    """Return why the account's firewall keeps the file system's subnet out; empty if it does not."""
    account = store(world).find(container.lower().partition("/blobservices/")[0])
    acls = account.properties["networkAcls"] if account else {}
    subnet = str(system.properties["filesystemSubnet"]).lower()
    admitted = {str(rule.get("id", "")).lower() for rule in acls.get("virtualNetworkRules") or []}
    if acls.get("defaultAction") == "Deny" and subnet not in admitted:
        return "This request is not authorized to perform this operation (AuthorizationFailure)."
    return ""
