"""The nodes of a cluster on which runs train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.devices import with_devices
from cloudrec.kubernetes.quantities import amount

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

_GPU = "nvidia.com/gpu"


def nodes_for_runs(kube: Kube, target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the nodes with the target's labels or, if it names none, those with GPUs."""
    rows = with_devices(kube, kube.list("Node", labels=dict(target.node_selector)), target.claims)
    if target.node_selector or _GPU not in target.resources:
        return rows
    return [each for each in rows if amount(((each.get("status") or {}).get("capacity") or {}).get(_GPU, 0))]
