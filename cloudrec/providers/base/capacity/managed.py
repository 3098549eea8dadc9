"""The access of runs to a managed cluster, whose keeper gives them nodes from any of several pools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.providers.base.offers import CAPACITY_TYPES, SPOT

if TYPE_CHECKING:
    from cloudrec.providers.base.access import KubernetesAccess
    from cloudrec.spec.models import ClusterSpec

NODES_LABEL, GPU_NODES = "cloudrec.io/nodes", "gpu"  # the label of every node: cpu or gpu


def spot_if_any(cluster: ClusterSpec, capacity: str) -> str:
    """Return the capacity type by which runs prepare for their nodes' end: spot if they may get such nodes.

    Args:
        cluster: the cluster.
        capacity: the capacity type of its pool of GPU nodes, or of one of several.
    """
    return SPOT if cluster.managed and SPOT in CAPACITY_TYPES[cluster.capacity] else capacity


def sized_by_keeper(access: KubernetesAccess, cluster: ClusterSpec) -> KubernetesAccess:
    """Return the access to a cluster whose keeper gives runs their nodes, from any of its pools."""
    if not cluster.managed:
        return access
    target = replace(access.target, node_selector={NODES_LABEL: GPU_NODES}, is_managed=True)
    return replace(access, nodes=cluster.nodes, target=target)
