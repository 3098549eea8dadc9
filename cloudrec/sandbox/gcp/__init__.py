"""Google Cloud, as far as cloudrec goes: GKE and Lustre over gRPC, all else over REST, in one process.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` tells all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"gke-cluster": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up). Code is a canonical one
                (FAILED_PRECONDITION) or a reason (quotaExceeded) that goes with the status
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C
    reset       true: back to an empty project
    and the settings that the modules add, each told in its module

GET /_control/calls?since=N   the calls after the N-th: service, action, iam_action, status, virtual_time;
                actions are gRPC's methods (CreateCluster) or REST's as the discovery documents name them
                (networks.insert), iam_action is the permission
POST /_control/save, /_control/restore   {"name": ...}: the whole project as it is, and as it was
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:path"

`/_control` is on the REST port. A drop over gRPC is the UNAVAILABLE that clients make of a closed connection.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.server import GcpServer

__all__ = ["serve"]


def serve(port: int) -> GcpServer:
    """A server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extra `gcp`."""
    for module in ("grpc", "proto"):
        if find_spec(module) is None:
            raise MissingExtraError("gcp", module=module)
    from cloudrec.sandbox.gcp import sdk  # noqa: PLC0415 - only where the extra is there

    sdk.prepare()
    from cloudrec.sandbox.gcp.server import serve as start  # noqa: PLC0415 - needs what was prepared

    return start(port)
