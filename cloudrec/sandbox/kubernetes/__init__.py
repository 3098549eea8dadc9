"""Kubernetes: an API server of this process's own, over HTTPS, and the cluster behind it.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` tells all of it:

    speed       virtual seconds in a real one (1 at start: containers are real processes)
    advance_s   let virtual time pass at once
    durations   seconds by name; `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                (API group, `core`) and action ("list pods", "create pods/eviction") are regular expressions.
                Kinds: throttle (429 with Retry-After), error (any status, with `code` as reason), 5xx; drop
                (closed, no effect), lost (closed after it), timeout (nothing until the client gives up)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C
    reset       true: back to an empty cluster of the same identity
    identity    be another cluster at the same address: the namespaces get other uids
    tokens      list of {"token" or "prefix", "user", "groups"}: bearer tokens that are let in
    history     how many changes watches can go back; compact: true forgets them, and the rests of lists
    watches     gone, close, drop: how all watches that run end now
    crds        list of definitions, or of operators whose kinds are to be served with a schema that allows
                everything: pytorchjob, trainjob, rayjob, kueue, gke-networking
    and what the cluster behind it adds

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "group:plural:namespace/name"
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.server import KubernetesServer

__all__ = ["serve"]


def serve(port: int) -> KubernetesServer:
    """A server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extras it needs."""
    for module in ("cryptography", "kubernetes_validate"):
        if find_spec(module) is None:
            raise MissingExtraError("sandbox", module=module)
    from cloudrec.sandbox.kubernetes.server import serve as start  # noqa: PLC0415 - only where the extra is there

    return start(port)
