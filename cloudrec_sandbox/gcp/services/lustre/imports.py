"""Imports from Cloud Storage: long-running operations of Managed Lustre, which its service agent carries out.

The source is a bucket or a folder that ends with a slash. A destination other than the root must exist on the
file system already (google-cloud-lustre's GcsPath and LustrePath); this stand-in has no files, so that only
the root is accepted. Without a `service_account` the service agent of the project reads the bucket
(ImportDataRequest), and needs storage.objects.list and storage.objects.get there. `lustre` of /_control shows
what was imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.cloud.lustre_v1.types import ImportDataMetadata, ImportDataResponse, Instance

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rpc
from cloudrec_sandbox.gcp.resources import operations, store
from cloudrec_sandbox.gcp.services.iam import policies
from cloudrec_sandbox.gcp.services.lustre.instances import Lustre

if TYPE_CHECKING:
    from google.cloud.lustre_v1.types import ImportDataRequest
    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"lustre-import": 600})

_SERVICE = "google.cloud.lustre.v1.Lustre"
_SOURCE = re.compile(r"gs://(?P<bucket>[a-z0-9][a-z0-9._-]{1,61}[a-z0-9])/?(?P<path>.*)")


@rpc("lustre", f"{_SERVICE}/ImportData", permission="lustre.instances.importData")
def import_data(call: Call, request: ImportDataRequest) -> Operation:
    """Begin to import from a bucket."""
    world = call.world
    instance = world.state(Lustre).instances.get(request.name)
    if instance is None:
        raise GcpError("NOT_FOUND", f"Resource '{request.name}' was not found")
    if instance.state != Instance.State.ACTIVE:
        raise GcpError("FAILED_PRECONDITION", f"Resource '{request.name}' must be ACTIVE.")
    found = _SOURCE.fullmatch(request.gcs_path.uri)
    if found is None or (found["path"] and not found["path"].endswith("/")):
        raise GcpError(
            "INVALID_ARGUMENT", f"Invalid gcs_path.uri '{request.gcs_path.uri}': a path must end with '/'."
        )
    if request.lustre_path.path not in ("", "/"):
        raise GcpError("INVALID_ARGUMENT", f"Path '{request.lustre_path.path}' does not exist.")
    metadata = ImportDataMetadata(create_time=as_datetime(world.now()))
    return operations.begin_long(
        world,
        request.name.partition("/instances/")[0],
        seconds=world.duration("lustre-import"),
        step=imported,
        arguments=(request.name, found["bucket"], request.gcs_path.uri, request.service_account),
        metadata=metadata,
    )


def imported(world: World, name: str, bucket: str, uri: str, account: str) -> ImportDataResponse:
    """Finish an import; or fail, if the account may not read the bucket."""
    number = projects.home(world).number
    agent = account or f"service-{number}@gcp-sa-lustre.iam.gserviceaccount.com"
    if store.find(world, "storage", f"b/{bucket}") is None:
        raise GcpError("NOT_FOUND", f"Bucket '{bucket}' was not found.")
    folder = uri.removeprefix(f"gs://{bucket}").strip("/")
    root = f"projects/_/buckets/{bucket}"
    for permission, path, kind in (
        ("storage.objects.list", root, "storage.googleapis.com/Bucket"),
        ("storage.objects.get", f"{root}/objects/{folder}/", "storage.googleapis.com/Object"),
    ):
        member = f"serviceAccount:{agent}"
        if not policies.allows(world, f"b/{bucket}", member, permission, name=path, kind=kind):
            raise GcpError(
                "PERMISSION_DENIED", f"{agent} does not have {permission} access to the bucket '{bucket}'."
            )
    world.state(Lustre).imported.setdefault(name, []).append(uri)
    return ImportDataResponse()
