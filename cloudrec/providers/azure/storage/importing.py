"""How a Lustre file system is filled from the container: roles of Azure's service, and import jobs.

The service principal "HPC Cache Resource Provider" of the tenant needs two roles on the storage account
before the file system is created, and the account's keys (azure-managed-lustre, amlfs-prerequisites.md). One
of the roles reads the keys of accounts, so a deployer cannot assign it: an owner does. An import job brings
the names of the blobs with a prefix; the content of a file follows when it is first read
(blob-integration.md). One job runs at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from cloudrec.engine.cost import FREE
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import models
from cloudrec.providers.azure.api.rows import plain
from cloudrec.providers.azure.identity.identity import AzureScopedRoleProperties
from cloudrec.providers.azure.identity.roles import (
    ACCOUNT_CONTRIBUTOR,
    BLOB_CONTRIBUTOR,
    CONTRIBUTOR,
    OWNER,
    POWERFUL,
    ROLES,
)
from cloudrec.providers.azure.identity.shared_role import SharedRoleDriver
from cloudrec.providers.azure.settings import LUSTRE_LOGS
from cloudrec.providers.azure.storage import storage
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.operated import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.clock import Clock
    from cloudrec.engine.graph import Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

ROLE = "importer-role"
NEEDS = frozenset({storage.ACCOUNT})
SERVICE = "HPC Cache Resource Provider"

_SUFFIXES: Mapping[str, str] = {"account": ACCOUNT_CONTRIBUTOR, "blobs": BLOB_CONTRIBUTOR}
_DATA_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"  # Storage Blob Data Owner
_SUFFICIENT: Mapping[str, frozenset[str]] = {
    ACCOUNT_CONTRIBUTOR: frozenset({POWERFUL[ACCOUNT_CONTRIBUTOR], POWERFUL[CONTRIBUTOR], POWERFUL[OWNER]}),
    BLOB_CONTRIBUTOR: frozenset({ROLES[BLOB_CONTRIBUTOR], _DATA_OWNER}),
}
_POLL_S = 10.0
_RUNNING = frozenset({"InProgress", "Cancelling", ""})  # a job that was created a moment ago has no state
_DONE = "Completed"


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the roles of the service; none if no container fills the file system."""
    importer = layout.settings.lustre_importer
    if not importer:
        return []
    return [
        layout.resource(
            ROLE,
            suffix,
            needs=(layout.key(storage.ACCOUNT),),
            properties=AzureScopedRoleProperties(
                role=role,
                scope=layout.account_id,
                principal=importer.lower(),
                identity="",
                principal_type="ServicePrincipal",
            ),
            is_shared=True,
            hourly_usd=FREE,
        )
        for suffix, role in _SUFFIXES.items()
    ]


def keys(layout: AzureLayout) -> tuple[str, ...]:
    """Return the keys of what a file system that is filled needs before it is created."""
    if not layout.settings.lustre_importer:
        return ()
    containers = (layout.key(storage.CONTAINER), layout.key(storage.CONTAINER, storage.LOGS))
    return (*containers, *layout.keys(ROLE, tuple(_SUFFIXES)))


def container(layout: AzureLayout, name: str) -> str:
    """Return the id of a container in lower case; empty if no container fills the file system."""
    if not layout.settings.lustre_importer:
        return ""
    return f"{layout.account_id}/blobServices/default/containers/{name}".lower()


class ImporterRoleDriver(SharedRoleDriver):
    """Handles the roles of the service. A search finds cloudrec's own alone, by their descriptions."""

    kind = ROLE

    def sufficient(self, resource: Resource[AzureScopedRoleProperties]) -> frozenset[str]:
        """Return the role, and those that allow more."""
        return _SUFFICIENT[resource.properties.role]

    def refusal(self, resource: Resource[AzureScopedRoleProperties]) -> str:
        """Return what the service may not do."""
        wanted = resource.properties
        return f"{SERVICE!r} may not read the container for Lustre: it lacks {wanted.role} on {wanted.scope}"

    def _note(
        self, resource: Resource[AzureScopedRoleProperties], principal: str, age_s: float = 0.0
    ) -> None:
        del resource
        self.azure.grants.add(principal, age_s)


def is_closed(error: Exception) -> bool:
    """Return whether Azure's Lustre service says that it cannot read a container."""
    return errors.code(error) == "InvalidParameter" and "inaccessible" in errors.message(error)


def explained(error: Exception) -> CloudrecError:
    """Return an error of cloudrec for a container that the service cannot read."""
    return PreflightError(
        f"Azure's Lustre service cannot read the container: {errors.message(error)}",
        remedy=f"look whether lustre_importer is the object id of {SERVICE!r} (`az ad sp list "
        f"--display-name '{SERVICE}' --query '[].id'`), and whether a policy forbids the account's keys",
    )


def fill(layout: AzureLayout, azure: Azure, below: str, clock: Clock) -> None:
    """Import the blobs of a dataset, and wait for it.

    Args:
        layout: the cluster's.
        azure: the subscription.
        below: the dataset's path in the container.
        clock: the clock for the wait.

    Raises:
        PreflightError: the cluster has no file system that a container fills.
        OperationFailedError: the import failed.
    """
    calls = azure.storagecache
    rows = azure.rows(calls.aml_filesystems.list_by_resource_group, layout.group)
    found = [row for row in rows if is_ours(row.tags or {}, layout.title) and row.hsm and row.hsm.settings]
    if not found:
        raise PreflightError(
            f"cluster {layout.title!r} has no Lustre file system that is filled from its container",
            remedy="use --data-tier local or bucket",
        )
    system, jobs = found[0], calls.import_jobs
    name = system.name or ""
    while any(_state(row) in _RUNNING for row in azure.rows(jobs.list_by_aml_filesystem, layout.group, name)):
        clock.sleep(_POLL_S)
    of = models.storagecache
    job = of.ImportJob(
        location=system.location,
        tags={key: value for key, value in (system.tags or {}).items() if key != "Name"},
        properties=of.ImportJobProperties(
            import_prefixes=[f"/{below}"],
            # Files of an earlier import that no client has changed stay; others are imported again.
            conflict_resolution_mode="OverwriteIfDirty",
            maximum_errors=0,
        ),
    )
    title = f"cloudrec-{uuid4().hex[:12]}"
    jobs.begin_create_or_update(layout.group, name, title, job, polling=False)
    while _state(row := azure.read(jobs.get, layout.group, name, title)) in _RUNNING:
        clock.sleep(_POLL_S)
    if _state(row) != _DONE:
        said = row.properties.status.status_message if row.properties and row.properties.status else ""
        raise OperationFailedError(
            f"Import{_state(row)}", f"{said or 'no reason is given'}; the container {LUSTRE_LOGS} has its log"
        )
    jobs.begin_delete(layout.group, name, title, polling=False)


def _state(row: models.storagecache.ImportJob) -> str:
    properties = row.properties
    if properties is None:
        return ""
    if plain(properties.provisioning_state) == "Failed":
        return "Failed"
    return plain(properties.status.state) or "" if properties.status else ""
