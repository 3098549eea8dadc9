"""Checks whether a cluster can train: the allocatable resources of its GPU nodes, and its add-ons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.findings import Finding
from cloudrec.kubernetes.addons import inventory
from cloudrec.kubernetes.addons.manage import needed
from cloudrec.kubernetes.addons.presence import elsewhere
from cloudrec.kubernetes.addons.readiness import state_of
from cloudrec.kubernetes.addons.table import addons
from cloudrec.kubernetes.quantities import amount
from cloudrec.kubernetes.queues.findings import queue_findings
from cloudrec.kubernetes.run_nodes import nodes_for_runs
from cloudrec.transport import advise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

_NAMED = 5  # nodes that a finding names


@dataclass(frozen=True, kw_only=True)
class _Node:
    name: str
    is_ready: bool
    conditions: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Any]
    allocatable: Mapping[str, Any]


def check(kube: Kube, target: ClusterTarget) -> list[Finding]:
    """Check everything that a run needs of a cluster, except its image and its data.

    Args:
        kube: the cluster.
        target: its nodes, and the resources that they should have.

    Returns:
        One finding for each check, passed or failed.
    """
    nodes = _nodes(kube, target)
    found = [_presence(nodes, target), *_readiness(nodes), *_conditions(nodes, target)]
    if nodes:
        found += [_allocation(nodes, name, wanted) for name, wanted in target.resources.items()]
    return [
        *found,
        *_addons(kube, target),
        *_networks(kube, target),
        *queue_findings(kube, target, len(nodes)),
    ]


def settings(environment: Mapping[str, str], fabric: str) -> list[Finding]:
    """Return a warning for each setting of a user that is obsolete or harmful."""
    return [
        Finding(
            check=f"setting {each.name}",
            ok=False,
            found=f"{each.name}={each.value}: {each.reason} ({each.source})",
            needed="not to be set",
            remedy=each.remedy,
            blocks=False,
        )
        for each in advise(environment, fabric)
    ]


def _nodes(kube: Kube, target: ClusterTarget) -> list[_Node]:
    """Return the nodes for runs: those with the selector or, without one, those with GPUs."""
    return [_node(each) for each in nodes_for_runs(kube, target)]


def _node(row: Mapping[str, Any]) -> _Node:
    status = row.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    return _Node(
        name=row["metadata"]["name"],
        is_ready=(conditions.get("Ready") or {}).get("status") == "True",
        conditions=conditions,
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
    )


def _presence(nodes: Sequence[_Node], target: ClusterTarget) -> Finding:
    selector = ", ".join(f"{key}={value}" for key, value in target.node_selector.items())
    return Finding(
        check="nodes for runs",
        ok=bool(nodes),
        found=str(len(nodes) or "none"),
        needed=f"with {selector}" if selector else "with GPUs",
        remedy=""
        if nodes
        else "wait until the nodes have joined the cluster; run `cloudrec up` again, which also installs the "
        "plugin without which no node reports its GPUs",
    )


def _readiness(nodes: Sequence[_Node]) -> list[Finding]:
    if not nodes:
        return []
    lost = [node.name for node in nodes if not node.is_ready]
    return [
        Finding(
            check="nodes ready",
            ok=not lost,
            found=f"{len(nodes) - len(lost)} of {len(nodes)}" + (f"; not {_some(lost)}" if lost else ""),
            needed=f"all {len(nodes)}",
            remedy="`kubectl describe node` shows why; the cloud replaces a node that stays not ready"
            if lost
            else "",
            blocks=len(lost) == len(nodes),
        )
    ]


def _conditions(nodes: Sequence[_Node], target: ClusterTarget) -> Iterable[Finding]:
    """Yield a finding for the conditions by which the cloud's agents report unhealthy nodes."""
    if not nodes or not target.unhealthy:
        return
    bad = [
        f"{node.name}: {kind}" + (f" ({reason})" if reason else "")
        for node in nodes
        for kind, status in target.unhealthy.items()
        if (condition := node.conditions.get(kind) or {}).get("status") == status
        for reason in [condition.get("reason") or condition.get("message") or ""]
    ]
    yield Finding(
        check="nodes healthy",
        ok=not bad,
        found=_some(bad) or "no problem is reported",
        needed="no GPU, kernel, network or disk problem",
        remedy="`kubectl describe node` shows it; if the cloud does not replace it, cordon it and delete "
        "its machine: the node pool makes another"
        if bad
        else "",
        blocks=False,
    )


def _allocation(nodes: Sequence[_Node], resource: str, wanted: str) -> Finding:
    least = amount(wanted)
    short = [node for node in nodes if amount(node.allocatable.get(resource, 0)) < least]
    amounts = [f"{node.name} has {node.allocatable.get(resource, 0)}" for node in short]
    return Finding(
        check=f"{resource} on each node",
        ok=not short,
        found=f"{len(nodes) - len(short)} of {len(nodes)} nodes have them"
        + (f"; {_some(amounts)}" if amounts else ""),
        needed=f"{wanted} allocatable on each",
        remedy=_remedy(resource, short) if short else "",
        blocks=len(short) == len(nodes),
    )


def _remedy(resource: str, short: Sequence[_Node]) -> str:
    """Return the remedy for cards that are not reported, or of which some are unhealthy."""
    addon = next((each for each in addons().values() if resource in each.provides.resources), None)
    # A device plugin reports an unhealthy card in the capacity, but not as allocatable.
    if any(amount(node.capacity.get(resource, 0)) for node in short):
        return "the plugin reports some of them as unhealthy: `kubectl describe node`; replace the node"
    if addon is None:
        return "the nodes have none: check the machine type and the settings of the node group"
    return (
        f"install the add-on {addon.name}; if it is installed, `kubectl -n kube-system logs` of its pod "
        "shows the cause"
    )


def _addons(kube: Kube, target: ClusterTarget) -> Iterable[Finding]:
    ours = {record.name: record for record in inventory.read_all(kube)}
    for addon in needed(target):
        if addon.name not in ours and not elsewhere(kube, addon):
            yield Finding(
                check=f"add-on {addon.name}",
                ok=False,
                found="not installed",
                needed=f"{addon.version}: {addon.purpose}",
                remedy="run `cloudrec up` again, which installs what a cluster needs",
            )
    for record in ours.values():
        states = [state for each in record.objects if (state := state_of(kube, each)) is not None]
        late = [f"{state.what}: {state.found}" for state in states if not state.is_ready]
        problem = _some(late) if late else ("" if record.is_whole else "its installation was not completed")
        yield Finding(
            check=f"add-on {record.name}",
            ok=not problem,
            found=problem or record.version,
            needed="all objects ready",
            remedy="install it again; `kubectl -n kube-system describe` of that object shows the cause"
            if problem
            else "",
        )


def _networks(kube: Kube, target: ClusterTarget) -> Iterable[Finding]:
    """Yield a finding for each network that is missing or not ready."""
    # Pods that use such a network stay pending, and Kubernetes reports no reason.
    if not target.networks or not kube.kinds.has("networking.gke.io/v1/Network"):
        return
    for each in target.networks:
        found = kube.get("networking.gke.io/v1/Network", each.object_name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        ready: Mapping[str, Any] = next((row for row in conditions if row.get("type") == "Ready"), {})
        if found is None or ready.get("status") == "False":
            yield Finding(
                check=f"network {each.object_name}",
                ok=False,
                found="it does not exist" if found is None else str(ready.get("message", "not ready")),
                needed=f"for the pods' {each.interface}",
                remedy="install the add-on gke-networks; the node pool must have that network",
            )


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
