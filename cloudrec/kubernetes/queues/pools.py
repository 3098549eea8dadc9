"""The nodes of a cluster as pools, of which Kueue's objects are made: their labels, topology and quota."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.manifests.placement import of_whole_node
from cloudrec.kubernetes.quantities import amount
from cloudrec.kubernetes.queues.demand import requests_of
from cloudrec.kubernetes.queues.kinds import HOST
from cloudrec.kubernetes.run_nodes import nodes_for_runs
from cloudrec.kubernetes.topology import NVLINK
from cloudrec.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

_TYPE = "node.kubernetes.io/instance-type"
_OWN = ("cpu", "memory", "ephemeral-storage")
_MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes of one machine type.

    Attributes:
        name: the machine type; `nodes` if the nodes have no label with it.
        labels: the labels that its nodes have, and no others.
        levels: the labels of its network's parts, the widest first, with the node itself last; empty if the
            nodes have none.
        quota: what runs can have of its nodes together, by resource.
    """

    name: str
    labels: Mapping[str, str]
    levels: Sequence[str]
    quota: Mapping[str, str]


def pools_of(kube: Kube, target: ClusterTarget) -> list[NodePool]:
    """Return the pools of the present nodes for runs; PreflightError if there are none."""
    nodes = nodes_for_runs(kube, target)
    if not nodes:
        raise PreflightError(
            "the cluster has no nodes for runs, and the quota of a queue is what its nodes have",
            remedy="bring them up with `cloudrec up`, then: cloudrec addons install kueue-queues",
        )
    by_type: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        by_type.setdefault((node["metadata"].get("labels") or {}).get(_TYPE, ""), []).append(node)
    used = _of_daemons(kube, {node["metadata"]["name"] for node in nodes})
    is_told = bool(target.node_selector) and len(by_type) == 1
    return [
        NodePool(
            name=kind or "nodes",
            labels={**target.node_selector, **({} if is_told or not kind else {_TYPE: kind})},
            levels=_levels(rows, target),
            quota=_quota(rows, target, used),
        )
        for kind, rows in sorted(by_type.items())
    ]


def _levels(nodes: Sequence[Mapping[str, Any]], target: ClusterTarget) -> tuple[str, ...]:
    """Return the levels that all nodes have: Kueue leaves out a node that lacks the label of one level."""
    labels = [node["metadata"].get("labels") or {} for node in nodes]
    found = [each for each in (*target.topology, NVLINK) if all(each in own for own in labels)]
    return (*found, HOST) if found else ()


def _quota(
    nodes: Sequence[Mapping[str, Any]], target: ClusterTarget, used: Mapping[str, Mapping[str, float]]
) -> dict[str, str]:
    whole = of_whole_node(target, profile_of(target.fabric, target.instance_type))
    total: dict[str, float] = {}
    for node in nodes:
        has = (node.get("status") or {}).get("allocatable") or {}
        taken = used.get(node["metadata"]["name"], {})
        for name in (*_OWN, *whole):
            # A device plugin that has just been installed may not have reported its devices yet.
            free = amount(has.get(name, 0)) or amount(whole.get(name, 0))
            total[name] = total.get(name, 0.0) + max(0.0, free - taken.get(name, 0.0))
    return {name: _text(name, value) for name, value in total.items()}


def _text(name: str, value: float) -> str:
    if name == "cpu":
        return f"{math.floor(value * 1000)}m"
    if "/" in name:
        return str(math.floor(value))
    return f"{math.floor(value / _MIB)}Mi"


def _of_daemons(kube: Kube, names: set[str]) -> dict[str, dict[str, float]]:
    """Return what pods of DaemonSets request on each node, which runs cannot have."""
    try:
        pods = kube.list("Pod", fields="status.phase!=Succeeded,status.phase!=Failed")
    except DeniedError:
        return {}  # then the quota is that of the whole nodes
    found: dict[str, dict[str, float]] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        node = (pod.get("spec") or {}).get("nodeName")
        if node in names and any(each.get("kind") == "DaemonSet" for each in owners):
            own = found.setdefault(node, {})
            for name, value in requests_of(pod["spec"]).items():
                own[name] = own.get(name, 0.0) + value
    return found
