"""Whether a cluster can train: what its GPU nodes really have to allocate, and whether its add-ons are up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.cluster import inventory
from cloudrec.cluster.addons import needed
from cloudrec.cluster.addons_table import addons
from cloudrec.cluster.presence import elsewhere
from cloudrec.cluster.quantities import amount
from cloudrec.cluster.readiness import state_of
from cloudrec.plan.transport import advise
from cloudrec.provider import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target

_NAMED = 5  # nodes that a finding names
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, kw_only=True)
class _Node:
    name: str
    is_ready: bool
    capacity: Mapping[str, Any]
    allocatable: Mapping[str, Any]


def check(kube: Kube, target: Target) -> list[Finding]:
    """Look at everything that a run needs of a cluster, but for its own image and data.

    Args:
        kube: the cluster.
        target: what its nodes are and should have.

    Returns:
        One finding for each thing looked at, those that are well among them.
    """
    nodes = _nodes(kube, target)
    found = [_presence(nodes, target), *_readiness(nodes)]
    if nodes:
        found += [_allocation(nodes, name, wanted) for name, wanted in target.resources.items()]
    return [*found, *_addons(kube, target), *_networks(kube, target)]


def settings(environment: Mapping[str, str], fabric: str) -> list[Finding]:
    """Return a finding for each setting of a user that is obsolete or harmful; it is a warning."""
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


def _nodes(kube: Kube, target: Target) -> list[_Node]:
    """Return the nodes where runs go: those with the selector or, without one, those with GPUs."""
    rows = [_node(each) for each in kube.list("Node", labels=dict(target.node_selector))]
    if target.node_selector or _GPU not in target.resources:
        return rows
    return [each for each in rows if amount(each.capacity.get(_GPU, 0))]


def _node(row: Mapping[str, Any]) -> _Node:
    status = row.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    return _Node(
        name=row["metadata"]["name"],
        is_ready=conditions.get("Ready") == "True",
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
    )


def _presence(nodes: Sequence[_Node], target: Target) -> Finding:
    selector = ", ".join(f"{key}={value}" for key, value in target.node_selector.items())
    return Finding(
        check="nodes for runs",
        ok=bool(nodes),
        found=str(len(nodes) or "none"),
        needed=f"with {selector}" if selector else "with GPUs",
        remedy=""
        if nodes
        else "wait until the nodes have joined the cluster; run `cloudrec up` again, which also installs the "
        "plugin without which no node tells of its GPUs",
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
            remedy="kubectl describe node tells why; the cloud replaces a node that stays so" if lost else "",
            blocks=len(lost) == len(nodes),
        )
    ]


def _allocation(nodes: Sequence[_Node], resource: str, wanted: str) -> Finding:
    least = amount(wanted)
    short = [node for node in nodes if amount(node.allocatable.get(resource, 0)) < least]
    told = [f"{node.name} has {node.allocatable.get(resource, 0)}" for node in short]
    return Finding(
        check=f"{resource} on each node",
        ok=not short,
        found=f"{len(nodes) - len(short)} of {len(nodes)} nodes have them"
        + (f"; {_some(told)}" if told else ""),
        needed=f"{wanted} to allocate on each",
        remedy=_remedy(resource, short) if short else "",
        blocks=len(short) == len(nodes),
    )


def _remedy(resource: str, short: Sequence[_Node]) -> str:
    """Return what to do: nobody tells of the cards, or some of them are not well."""
    brings = next((each for each in addons().values() if resource in each.provides.resources), None)
    if any(amount(node.capacity.get(resource, 0)) for node in short):
        return "the plugin holds some of them for broken: `kubectl describe node`; replace the node"
    if brings is None:
        return "the nodes were made without them: their machine or the node group's settings do not fit"
    return (
        f"install the add-on {brings.name}; where it is, `kubectl -n kube-system logs` of its pod tells why"
    )


def _addons(kube: Kube, target: Target) -> Iterable[Finding]:
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
        problem = (
            _some(late) if late else ("" if record.is_whole else "its installation did not go to its end")
        )
        yield Finding(
            check=f"add-on {record.name}",
            ok=not problem,
            found=problem or record.version,
            needed="all of it ready",
            remedy="install it again; `kubectl -n kube-system describe` of that object tells why"
            if problem
            else "",
        )


def _networks(kube: Kube, target: Target) -> Iterable[Finding]:
    """Pods that name a network which is not ready stay pending without a word of why."""
    if not target.networks or not kube.kinds.has("networking.gke.io/v1/Network"):
        return
    for each in target.networks:
        found = kube.get("networking.gke.io/v1/Network", each["network"])
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        told: Mapping[str, Any] = next((row for row in conditions if row.get("type") == "Ready"), {})
        if found is None or told.get("status") == "False":
            yield Finding(
                check=f"network {each['network']}",
                ok=False,
                found="it is not there" if found is None else str(told.get("message", "not ready")),
                needed=f"for the pods' {each['interface']}",
                remedy="install the add-on gke-networks; the node pool must have been made with that network",
            )


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
