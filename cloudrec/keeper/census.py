"""The nodes of a cluster, as the meter counts them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cloudrec.keeper.meter import LiveNode
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, ROLE, RUN, TRAINER

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube

_ENDED = ("Succeeded", "Failed")
_ZONE = "topology.kubernetes.io/zone"


def live_nodes(kube: Kube, namespace: str, pool_label: str) -> list[LiveNode]:
    """Return the nodes that exist, each with the run whose pods it has.

    Args:
        kube: a client of the cluster's API server; it must be allowed to list nodes.
        namespace: the namespace of the runs.
        pool_label: the label by which the cloud names a node's pool.
    """
    labels = f"{MANAGED_BY}={MANAGER},{RUN},{ROLE}={TRAINER}"
    pods = kube.list("Pod", namespace=namespace, labels=labels)
    runs = {
        pod["spec"].get("nodeName", ""): pod["metadata"]["labels"][RUN]
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in _ENDED
    }
    # Of a thousand nodes, metadata is a tenth of the bytes.
    found = [node["metadata"] for node in kube.list("Node", metadata_only=True)]
    return [
        LiveNode(
            uid=metadata["uid"],
            pool=(metadata.get("labels") or {}).get(pool_label, ""),
            created=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
            run=runs.get(metadata["name"], ""),
            zone=(metadata.get("labels") or {}).get(_ZONE, ""),
        )
        for metadata in found
    ]
