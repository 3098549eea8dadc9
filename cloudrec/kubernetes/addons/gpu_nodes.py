"""The nodes with GPUs of a cluster without a node selector, by the labels that NVIDIA's own chart reads.

The chart of NVIDIA/k8s-device-plugin places the plugin by them (`affinity` in its values.yaml): Node Feature
Discovery sets the first two, and a person sets the third to force the plugin onto a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.errors import DeniedError

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube

_FORCED = "nvidia.com/gpu.present"
_SIGNS = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/cpu-model.vendor_id": "NVIDIA",
    _FORCED: "true",
}


def affinity() -> dict[str, Any]:
    """Return the affinity of a pod that runs on nodes with GPUs only."""
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        for key, value in _SIGNS.items()
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def require(kube: Kube, addon: str) -> None:
    """Raise PreflightError if no node has a label that says that it has GPUs."""
    try:
        nodes = kube.list("Node")
    except DeniedError:
        return  # without the right to list nodes, it is unknown
    if any(_SIGNS.items() & (node["metadata"].get("labels") or {}).items() for node in nodes):
        return
    raise PreflightError(
        f"{addon}: no node has a label that says that it has NVIDIA GPUs ({', '.join(_SIGNS)})",
        remedy=f"kubectl label node NAME {_FORCED}=true on each node with GPUs, or name their label: "
        "--set cluster.settings.node_selector.KEY=VALUE",
    )
