"""Whether a cluster has what an add-on is for, whoever brought it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.kube.errors import DeniedError

if TYPE_CHECKING:
    from cloudrec.cluster.addons_table import Addon
    from cloudrec.kube.client import Kube


def elsewhere(kube: Kube, addon: Addon) -> str:
    """Return by what a cluster shows that it has an add-on; empty where it does not.

    Two plugins for one kind of device would take it from one another, and two operators would both answer
    for one object: so this is asked before anything is installed.
    """
    for name in addon.provides.crds:
        if kube.get("CustomResourceDefinition", name) is not None:
            return f"the kind {name} is defined"
    for name in addon.provides.drivers:
        if kube.get("CSIDriver", name) is not None:
            return f"the CSI driver {name} is there"
    return _allocatable(kube, addon)


def _allocatable(kube: Kube, addon: Addon) -> str:
    if not addon.provides.resources:
        return ""
    try:
        nodes = kube.list("Node")
    except DeniedError:
        return ""
    for name in addon.provides.resources:
        have = [node for node in nodes if _count(node, name)]
        if have:
            return f"{name} can be allocated on nodes: {len(have)}"
    return ""


def _count(node: dict[str, object], resource: str) -> int:
    status = node.get("status")
    allocatable = status.get("allocatable") or {} if isinstance(status, dict) else {}
    return int(allocatable.get(resource, 0))
