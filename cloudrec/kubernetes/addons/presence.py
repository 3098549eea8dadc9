"""Detects add-ons that cloudrec has not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.kubernetes.client.errors import DeniedError

if TYPE_CHECKING:
    from cloudrec.kubernetes.addons.table import Addon
    from cloudrec.kubernetes.client.client import Kube


def elsewhere(kube: Kube, addon: Addon) -> str:
    """Return a sentence on how a cluster shows that it has an add-on; empty if it does not have it.

    It is called before an installation: two plugins would compete for the same devices, and two operators
    would both act on the same objects.
    """
    for name in addon.provides.crds:
        if kube.get("CustomResourceDefinition", name) is not None:
            return f"the kind {name} is defined"
    for name in addon.provides.drivers:
        if kube.get("CSIDriver", name) is not None:
            return f"the CSI driver {name} is installed"
    return _allocatable(kube, addon)


def _allocatable(kube: Kube, addon: Addon) -> str:
    if not addon.provides.resources:
        return ""
    try:
        nodes = kube.list("Node")
    except DeniedError:
        return ""  # without the right to list nodes, it is unknown
    for name in addon.provides.resources:
        have = [node for node in nodes if _count(node, name)]
        if have:
            return f"{name} can be allocated on nodes: {len(have)}"
    return ""


def _count(node: dict[str, object], resource: str) -> int:
    status = node.get("status")
    allocatable = status.get("allocatable") or {} if isinstance(status, dict) else {}
    return int(allocatable.get(resource, 0))
