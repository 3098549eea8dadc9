"""Google Cloud, as far as cloudrec needs it: GKE and Lustre over gRPC, the others over REST, in one process.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` returns all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"gke-cluster": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up). Code is a canonical one
                (FAILED_PRECONDITION) or a reason (quotaExceeded), used with the status
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C. P is a
                process of the same user that began after the stand-in
    reset       true: back to an empty project
    and the settings that the modules add, each described in its module

GET /_control/calls?since=N   the calls after the N-th: service, action, iam_action, status, virtual_time;
                actions are gRPC's methods (CreateCluster) or REST's as the discovery documents name them
                (networks.insert), iam_action is the permission
POST /_control/save, /_control/restore   {"name": ...}: save the whole project, and restore it
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:path"

`/_control` is on the REST port. A drop over gRPC shows as UNAVAILABLE, as a closed connection does.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError
from cloudrec_sandbox.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.server import GcpServer

__all__ = ["ISOLATION", "POD_VARIABLES", "REHEARSAL", "serve"]

# By these, pods on linked nodes find the buckets, and the guard finds the node pools.
POD_VARIABLES = (
    *("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
    *("GOOGLE_CLOUD_ENDPOINT_URL", "GOOGLE_CLOUD_GRPC_ENDPOINT"),
)

# `cloudrec sandbox run` sets this: a new project has no GPU quota, as at Google.
REHEARSAL: Mapping[str, Any] = {
    "speed": 600,
    "quotas": {
        "us-central1/NVIDIA_A100_GPUS": 500,
        "europe-west4/NVIDIA_A100_GPUS": 500,
        "global/GPUS_ALL_REGIONS": 500,
    },
}
# https://cloud.google.com/docs/authentication/application-default-credentials; google-auth reads NO_GCE_CHECK
# before it queries the machine's metadata server.
ISOLATION = Isolation(
    prefixes=("CLOUDSDK_", "GCE_", "GCLOUD_", "GOOGLE_", "STORAGE_EMULATOR_HOST"),
    missing={"CLOUDSDK_CONFIG": "gcloud"},
    values={"NO_GCE_CHECK": "true"},
)


def serve(port: int) -> GcpServer:
    """Return a server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extra `gcp`."""
    for module in ("grpc", "proto"):
        if find_spec(module) is None:
            raise MissingExtraError("gcp", module=module)
    from cloudrec_sandbox.gcp import sdk  # noqa: PLC0415 - Google's SDK is in the extra only

    sdk.prepare()
    from cloudrec_sandbox.gcp.server import serve as start  # noqa: PLC0415 - only after `prepare`

    return start(port)
