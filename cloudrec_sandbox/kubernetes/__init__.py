"""Kubernetes: an API server in this process, over HTTPS, and the cluster behind it.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` returns all of it:

    speed       virtual seconds in a real one (1 at start: containers are real processes)
    advance_s   let virtual time pass at once
    durations   seconds by name; `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                (API group, `core`) and action ("list pods", "create pods/eviction") are regular expressions.
                Kinds: throttle (429 with Retry-After), error (any status, with `code` as reason), 5xx; drop
                (closed, no effect), lost (closed after it), timeout (nothing until the client gives up)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C. P is a
                process of the same user that began after the stand-in
    reset       true: back to an empty cluster of the same identity
    identity    makes it another cluster at the same address: the namespaces get other uids
    siblings    a number: make so many further clusters in this process, with their own API servers and the
                same `environment` for pods; reads as a list of their announcements
    tokens      list of {"token", "prefix" or "aws_key", "user", "groups"}: the bearer tokens that are
                accepted; "aws_key" is the access key that signed a token of EKS
    issuer      {"url", "key"}: who issues service accounts' tokens; with "azure": {"tenant", "authority"},
                pods get Azure's workload identity, too
    history     how many changes watches can go back; compact: true forgets them, and the rests of lists
    watches     gone, close, drop: how all running watches end now
    crds        list of definitions, or of operators whose kinds are served with a schema that allows
                everything: pytorchjob, trainjob, rayjob, kueue, gke-networking
    and the settings of the cluster behind it

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "group:plural:namespace/name"
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError
from cloudrec_sandbox.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.server import KubernetesServer

__all__ = ["BUCKET", "ISOLATION", "REHEARSAL", "STORE", "STORE_URL", "serve"]

# `cloudrec sandbox run` sets this, and starts a stand-in that has a bucket: a cluster which a user adopts
# has nodes, and the user has an object store.
REHEARSAL: Mapping[str, Any] = {
    "nodes": [{"name": "worker", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}],
    "processes": True,
}
STORE = "aws"
STORE_URL = "AWS_ENDPOINT_URL"
BUCKET = "sandbox"

# The places where kubectl and the client find a cluster: a kubeconfig, or the variables in a pod.
ISOLATION = Isolation(prefixes=("KUBECONFIG", "KUBERNETES_"), missing={"KUBECONFIG": "kubeconfig"})


def serve(port: int) -> KubernetesServer:
    """Return a server on a port of 127.0.0.1 (0: a free one); MissingExtraError without its extras."""
    for module in ("cryptography", "kubernetes_validate"):
        if find_spec(module) is None:
            raise MissingExtraError("sandbox", module=module)
    from cloudrec_sandbox.kubernetes.server import serve as start  # noqa: PLC0415 - it needs the extras

    return start(port)
