"""The cores and the memory that the daemons of the training nodes leave to a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec.kubernetes.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_GIB = 1024.0**3
_RESOURCES = ("cpu", "memory")
_KEEPS_OFF = ("NoSchedule", "NoExecute")
# The DaemonSet controller gives its pods tolerations for these taints (Kubernetes' docs, "DaemonSet").
_TOLERATED = "node.kubernetes.io/"


class NodeRoom(NamedTuple):
    """What a run's pod can request on each of the training nodes."""

    cores: float
    memory_gib: float


def room_of(nodes: Sequence[Mapping[str, Any]], daemon_sets: Iterable[Mapping[str, Any]]) -> NodeRoom:
    """Return the cores and the memory that are left on the node with the least of them.

    A pod of a run may be placed on any of the nodes, so the least counts, for each resource separately.

    Args:
        nodes: the nodes that train; not empty.
        daemon_sets: the DaemonSets of the cluster; each has a pod on every node that it matches.
    """
    daemons = [each["spec"]["template"]["spec"] for each in daemon_sets]
    left = []
    for node in nodes:
        taken = [requests(pod) for pod in daemons if _runs_on(pod, node)]
        have = (node.get("status") or {}).get("allocatable") or {}
        left.append([amount(have.get(name, "0")) - sum(each[name] for each in taken) for name in _RESOURCES])
    cores, memory = (max(0.0, min(each[column] for each in left)) for column in range(len(_RESOURCES)))
    return NodeRoom(cores=cores, memory_gib=memory / _GIB)


def requests(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return the cores and the bytes of memory that the scheduler reserves for a pod's spec.

    Init containers run one after the other, and those that restart always run until the pod's end
    (Kubernetes' documentation, "Sidecar Containers: resource sharing within containers").
    """
    return {name: _request(pod, name) for name in _RESOURCES}


def _request(pod: Mapping[str, Any], name: str) -> float:
    beside, highest = 0.0, 0.0
    for each in pod.get("initContainers") or ():
        own = _own(each, name)
        if each.get("restartPolicy") == "Always":
            beside += own
            highest = max(highest, beside)
        else:
            highest = max(highest, beside + own)
    together = beside + sum(_own(each, name) for each in pod.get("containers") or ())
    return max(together, highest) + amount((pod.get("overhead") or {}).get(name, "0"))


def _own(container: Mapping[str, Any], name: str) -> float:
    resources = container.get("resources") or {}
    # Kubernetes takes the limit for the request of a container that states only a limit.
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return amount(given.get(name, "0"))


def _runs_on(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Return whether a DaemonSet has a pod on a node; in doubt, yes."""
    labels = node["metadata"].get("labels") or {}
    if not (pod.get("nodeSelector") or {}).items() <= labels.items():
        return False
    wanted = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = wanted.get("nodeSelectorTerms") or ()
    if terms and not any(_matches(term, labels) for term in terms):
        return False
    taints = (node.get("spec") or {}).get("taints") or ()
    return all(_is_tolerated(taint, pod) for taint in taints if taint.get("effect") in _KEEPS_OFF)


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a term; conditions other than on the presence or value of labels do."""
    for each in term.get("matchExpressions") or ():
        value, values = labels.get(each["key"]), each.get("values") or ()
        match each["operator"]:
            case "In" if value not in values:
                return False
            case "NotIn" if value is not None and value in values:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
    return True


def _is_tolerated(taint: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    if taint["key"].startswith(_TOLERATED):
        return True
    for each in pod.get("tolerations") or ():
        if each.get("effect") not in (None, "", taint["effect"]):
            continue
        if each.get("operator") == "Exists" and each.get("key") in (None, "", taint["key"]):
            return True
        if each.get("key") == taint["key"] and each.get("value", "") == (taint.get("value") or ""):
            return True
    return False
