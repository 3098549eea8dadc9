"""Reads whether Kueue can ever admit a run to a queue. What it could not admit would wait without end.

Kueue admits a run if its LocalQueue and the ClusterQueue behind it are active, and if for each resource that
the pods request the ClusterQueue has a flavor with enough quota, whose nodes the pods may use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.queues.flavors import Flavor
from cloudrec.kubernetes.queues.kinds import CLUSTER_QUEUE, FLAVOR, HOST, LOCAL_QUEUE, OURS, TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.queues.demand import PodDemand

_RENEW = "cloudrec addons install kueue-queues"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A reason for which a queue admits no run, or not this one.

    Attributes:
        found: a sentence on the reason.
        remedy: what helps.
    """

    found: str
    remedy: str


def names_in(kube: Kube, namespace: str) -> list[str]:
    """Return the names of a namespace's LocalQueues; none without Kueue or the right to list them."""
    if not kube.kinds.has(LOCAL_QUEUE):
        return []
    try:
        return [each["metadata"]["name"] for each in kube.list(LOCAL_QUEUE, namespace=namespace)]
    except DeniedError:
        return []


def refusals(
    kube: Kube, namespace: str, queue: str, demands: Sequence[PodDemand], *, may_lack_nodes: bool = False
) -> list[Refusal]:
    """Return why Kueue could never admit pods to a queue; none if it could, or if that is not known.

    Args:
        kube: a cluster with Kueue.
        namespace: the namespace of the run.
        queue: its LocalQueue.
        demands: the run's pods.
        may_lack_nodes: whether an autoscaler may add the nodes of a flavor that has none.
    """
    try:
        local = kube.get(LOCAL_QUEUE, queue, namespace=namespace)
        if local is None:
            return [_absent(kube, namespace, queue)]
        if found := _stopped(local, f"kubectl -n {namespace} describe localqueue {queue}"):
            return [found]
        name = (local.get("spec") or {}).get("clusterQueue") or ""
        behind = kube.get(CLUSTER_QUEUE, name) if name else None
        if behind is None:
            return [_without_cluster_queue(queue, name)]
        return _of_cluster_queue(kube, namespace, behind, demands, may_lack_nodes=may_lack_nodes)
    except DeniedError:
        return []  # without the right to read queues; Kueue's events will name the reason


def level_of(kube: Kube, namespace: str, queue: str) -> str:
    """Return the narrowest part of the network in a queue's topology; empty if it has none.

    A run that names a level gets only flavors with a topology. So all flavors must have one with that level.
    """
    try:
        local = kube.get(LOCAL_QUEUE, queue, namespace=namespace) or {}
        name = (local.get("spec") or {}).get("clusterQueue")
        behind = kube.get(CLUSTER_QUEUE, name) if name else None
        flavors = [each for group in _groups(behind or {}) for each in _flavors(kube, group, behind or {})]
    except DeniedError:
        return ""
    if not flavors or not all(each.levels for each in flavors):
        return ""
    first = [each for each in flavors[0].levels or () if each != HOST]
    common = [each for each in first if all(each in (other.levels or ()) for other in flavors)]
    return common[-1] if common else ""


def _absent(kube: Kube, namespace: str, queue: str) -> Refusal:
    known = ", ".join(names_in(kube, namespace)) or "none"
    if queue == OURS:
        return Refusal(
            found=f"namespace {namespace!r} has no LocalQueue {queue!r}; it has {known}", remedy=_RENEW
        )
    return Refusal(
        found=f"namespace {namespace!r} has no LocalQueue {queue!r}; it has {known}",
        remedy=f"use one of these; or `{_RENEW}`, which makes the LocalQueue {OURS!r} of the cluster's nodes",
    )


def _without_cluster_queue(queue: str, name: str) -> Refusal:
    if not name:
        return Refusal(
            found=f"the LocalQueue {queue!r} names no ClusterQueue", remedy="have an administrator name one"
        )
    return Refusal(
        found=f"the LocalQueue {queue!r} is for the ClusterQueue {name!r}, which does not exist",
        remedy=_RENEW if queue == OURS else "have an administrator create it, or use another queue",
    )


def _stopped(found: Mapping[str, Any], remedy: str) -> Refusal | None:
    """Return that a queue is stopped or not active."""
    what = f"the {found['kind']} {found['metadata']['name']!r}"
    policy = (found.get("spec") or {}).get("stopPolicy") or "None"
    if policy != "None":
        return Refusal(
            found=f"{what} admits no run: its stopPolicy is {policy}",
            remedy="the person who stopped it sets spec.stopPolicy to None again",
        )
    conditions = (found.get("status") or {}).get("conditions") or []
    active: Mapping[str, Any] = next((each for each in conditions if each.get("type") == "Active"), {})
    if active.get("status") != "False":
        return None
    why = active.get("message") or active.get("reason") or "it is not active"
    return Refusal(found=f"{what} admits no run: {why}", remedy=remedy)


def _of_cluster_queue(
    kube: Kube,
    namespace: str,
    behind: Mapping[str, Any],
    demands: Sequence[PodDemand],
    *,
    may_lack_nodes: bool,
) -> list[Refusal]:
    name = behind["metadata"]["name"]
    groups = [(group, _flavors(kube, group, behind)) for group in _groups(behind)]
    broken = [each for _, flavors in groups for flavor in flavors for each in _broken(name, flavor)]
    if broken:  # Kueue makes the whole ClusterQueue inactive
        return broken
    if found := _stopped(behind, f"kubectl describe clusterqueue {name}"):
        return [found]
    if not _is_admitted(kube, namespace, behind):
        return [
            Refusal(
                found=f"the ClusterQueue {name!r} admits no run of namespace {namespace!r}: its "
                "namespaceSelector does not select it",
                remedy="have its administrator add the namespace, or use another queue",
            )
        ]
    nodes = kube.list("Node")
    return list(_unfit(name, groups, demands, nodes, may_lack_nodes=may_lack_nodes))


def _groups(behind: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (behind.get("spec") or {}).get("resourceGroups") or ()


def _flavors(kube: Kube, group: Mapping[str, Any], behind: Mapping[str, Any]) -> list[Flavor]:
    found = []
    for each in group.get("flavors") or ():
        flavor = kube.get(FLAVOR, each["name"])
        spec = None if flavor is None else flavor.get("spec") or {}
        name = (spec or {}).get("topologyName")
        topology = kube.get(TOPOLOGY, name) if name else None
        rows = ((topology or {}).get("spec") or {}).get("levels") or ()
        found.append(
            Flavor(
                name=each["name"],
                spec=spec,
                levels=None if topology is None else [row["nodeLabel"] for row in rows],
                quota={row["name"]: row for row in each.get("resources") or ()},
                is_borrowing=bool((behind.get("spec") or {}).get("cohortName")),
            )
        )
    return found


def _broken(queue: str, flavor: Flavor) -> Iterator[Refusal]:
    """Yield that a flavor, or the topology that it names, does not exist."""
    if flavor.spec is None:
        yield Refusal(
            found=f"the ClusterQueue {queue!r} has the flavor {flavor.name!r}, and there is no such "
            "ResourceFlavor",
            remedy=f"create it, or make the queue again: {_RENEW}",
        )
    elif flavor.topology and flavor.levels is None:
        yield Refusal(
            found=f"the ResourceFlavor {flavor.name!r} names the Topology {flavor.topology!r}, which does "
            "not exist",
            remedy=f"create it, or make the queue again: {_RENEW}",
        )


def _is_admitted(kube: Kube, namespace: str, behind: Mapping[str, Any]) -> bool:
    selector = (behind.get("spec") or {}).get("namespaceSelector")
    if selector is None:
        return False  # it selects nothing
    try:
        space = kube.get("Namespace", namespace)
    except DeniedError:
        return True
    labels = ((space or {}).get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), expression.get("values") or ()
    found = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return found.get(str(expression.get("operator")), True)


def _unfit(
    queue: str,
    groups: Sequence[tuple[Mapping[str, Any], Sequence[Flavor]]],
    demands: Sequence[PodDemand],
    nodes: Sequence[Mapping[str, Any]],
    *,
    may_lack_nodes: bool,
) -> Iterator[Refusal]:
    """Yield why no flavor can be assigned to pods."""
    covered = {name for group, _ in groups for name in group.get("coveredResources") or ()}
    asked = {name for each in demands for name, value in each.requests.items() if value}
    for name in sorted(asked - covered):
        yield Refusal(
            found=f"the ClusterQueue {queue!r} has no quota of {name}, which the run's pods request",
            remedy=f"add {name} to its coveredResources and flavors, or make a queue of the cluster's nodes: "
            f"{_RENEW}",
        )
    for group, flavors in groups:
        names = set(group.get("coveredResources") or ())
        keys = {key for flavor in flavors for key in flavor.labels}
        rows = [each for each in demands if names & {name for name, value in each.requests.items() if value}]
        for demand in rows:
            # Pods of several kinds share the quota of a single flavor.
            sharing = rows if len(flavors) == 1 else [demand]
            why = [
                flavor.excludes(demand, keys)
                or flavor.lacks_quota(sharing, names)
                or ("" if may_lack_nodes else flavor.lacks_nodes(nodes))
                for flavor in flavors
            ]
            if all(why):
                yield Refusal(
                    found=f"the ClusterQueue {queue!r} has no flavor for the run's {demand.count} pods: "
                    + "; ".join(why),
                    remedy="use fewer --nodes or another queue, or have its administrator change it; a queue "
                    f"that cloudrec made is renewed by: {_RENEW}",
                )
                break
