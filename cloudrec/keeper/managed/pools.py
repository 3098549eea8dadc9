"""The pools of a managed cluster as the keeper sees them, with their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.wishes import LEAVING, NODE_RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube

_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, kw_only=True)
class PoolNode:
    """A node of a pool.

    Attributes:
        name: its name.
        created: the creation of its Node object, in seconds since the epoch.
        is_ready: whether pods with GPUs can start on it.
        is_ending: whether it takes no further pods, because it ends or must be replaced.
        problem: the condition by which the cloud's agents report it as unhealthy; empty if they do not.
        run: the run for whose pods alone it is; empty for any.
        is_leaving: whether the keeper has cordoned it, to release its pool.
    """

    name: str
    created: float
    is_ready: bool
    is_ending: bool
    problem: str = ""
    run: str = ""
    is_leaving: bool = False


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """A pool and its nodes.

    Attributes:
        name: the pool's name.
        nodes: its nodes.
    """

    name: str
    nodes: Sequence[PoolNode] = field(default_factory=tuple)

    def usable(self) -> list[PoolNode]:
        """Return the nodes that do not end."""
        return [node for node in self.nodes if not node.is_ending]


def pool_views(
    kube: Kube, pool_label: str, pools: Sequence[str], unhealthy: Mapping[str, str]
) -> Mapping[str, PoolView]:
    """Return the view of each pool.

    Args:
        kube: a client of the cluster's API server; it must be allowed to list nodes.
        pool_label: the label by which the cloud names a node's pool.
        pools: the names of the pools.
        unhealthy: conditions of nodes that must be replaced, each with the status of a problem.
    """
    found: dict[str, list[PoolNode]] = {pool: [] for pool in pools}
    for node in kube.list("Node"):
        name = (node["metadata"].get("labels") or {}).get(pool_label, "")
        if name in found:
            found[name].append(_node(node, unhealthy))
    return {pool: PoolView(name=pool, nodes=tuple(nodes)) for pool, nodes in found.items()}


def _node(node: Mapping[str, Any], unhealthy: Mapping[str, str]) -> PoolNode:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    has_gpus = (status.get("allocatable") or {}).get(_GPU, "0") not in ("", "0")
    # Clouds and the kubelet cordon a node that ends; a node that does not answer is tainted by Kubernetes.
    is_gone = any(
        taint.get("key") in {"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"}
        for taint in spec.get("taints") or ()
    )
    wrong = [f"{kind} is {status}" for kind, status in unhealthy.items() if conditions.get(kind) == status]
    # A node that the keeper itself has cordoned is still there: the keeper can take it back.
    is_leaving = LEAVING in (metadata.get("annotations") or {})
    is_cordoned = bool(spec.get("unschedulable")) and not is_leaving
    is_ending = bool(metadata.get("deletionTimestamp") or is_cordoned or is_gone or wrong)
    return PoolNode(
        name=metadata["name"],
        created=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        is_ready=conditions.get("Ready") == "True" and has_gpus and not is_ending,
        is_ending=is_ending,
        problem=", ".join(wrong),
        run=(metadata.get("labels") or {}).get(NODE_RUN, ""),
        is_leaving=is_leaving,
    )
