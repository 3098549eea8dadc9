"""The nodes that train: ready nodes that match the selector; only those with GPUs, if any node has GPUs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.providers.base.facts import all_facts, fabric_of, topology_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cloudrec.providers.base.facts import Fabric, PreemptionNotice
    from cloudrec.providers.kubernetes.settings import KubernetesSettings

GPU = "nvidia.com/gpu"
_TYPE = "node.kubernetes.io/instance-type"
# Key prefixes of taints that a node has only while it is unhealthy, starting or being removed: runs must not
# tolerate them, unlike the permanent taints of GPU nodes.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
_CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_NOTICE_S = 30  # if no cloud is known to give a notice
_QUANTITY = re.compile(r"([0-9.]+(?:e[0-9]+)?)([a-zA-Z]*)")
_FACTORS = {
    "": 1.0,
    "m": 1e-3,
    **{unit: 1e3**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The nodes that train. A pod may run on any of them, so its values are those that all nodes satisfy.

    Attributes:
        names: the nodes' names.
        gpus: the least number of allocatable GPUs of a node; 0 trains on the CPU.
        cores: the least number of allocatable cores of a node.
        memory_gib: the least allocatable memory of a node, in GiB.
        instance_type: the nodes' instance type; empty if they differ.
        fabric: the interconnect between their GPUs.
        resources: the resource requests of a pod that uses a whole node.
        tolerations: tolerations of the nodes' taints.
        capabilities: the container capabilities that the fabric needs.
        notices: the metadata service with preemption notices; empty for none.
        notice_s: seconds between a notice and the node's end.
        topology: labels of the network's topology that the nodes have, the widest part first.
        left_out: node name -> reason, for nodes that match the selector but cannot train.
    """

    names: tuple[str, ...]
    gpus: int = 0
    cores: int = 0
    memory_gib: float = 0.0
    instance_type: str = ""
    fabric: str = "none"
    resources: Mapping[str, str]
    tolerations: Sequence[Mapping[str, str]]
    capabilities: tuple[str, ...] = ()
    notices: str = ""
    notice_s: int = _NOTICE_S
    topology: tuple[str, ...] = ()
    left_out: Mapping[str, str]


def pool_of(nodes: Iterable[Mapping[str, Any]], settings: KubernetesSettings) -> Pool:
    """Return the nodes that train.

    Args:
        nodes: all nodes of the cluster, as the API server lists them.
        settings: the node selector, and values that override the detected ones.
    """
    chosen: list[Mapping[str, Any]] = []
    left_out: dict[str, str] = {}
    for node in nodes:
        if not settings.node_selector.items() <= (node["metadata"].get("labels") or {}).items():
            continue
        if why := _unfit(node):
            left_out[node["metadata"]["name"]] = why
        else:
            chosen.append(node)
    with_gpus = [node for node in chosen if _count(node, GPU)]
    left_out |= {_name(node): "has no GPU" for node in chosen if with_gpus and node not in with_gpus}
    return _described(with_gpus or chosen, settings, left_out)


def quantity(text: object) -> float:
    """Return a Kubernetes quantity (500m, 16Gi) as a number; 0 if it is not one."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None or found[2] not in _FACTORS:
        return 0.0
    return float(found[1]) * _FACTORS[found[2]]


def _described(
    nodes: Sequence[Mapping[str, Any]], settings: KubernetesSettings, left_out: Mapping[str, str]
) -> Pool:
    gpus = min((_count(node, GPU) for node in nodes), default=0)
    cards = _cards(nodes)
    fabric = settings.fabric or _fabric(gpus, cards)
    types = {(node["metadata"].get("labels") or {}).get(_TYPE, "") for node in nodes}
    who = {str((node.get("spec") or {}).get("providerID", "")).partition(":")[0] for node in nodes}
    notice = _notice(who)
    known = fabric_of(fabric)
    return Pool(
        names=tuple(sorted(_name(node) for node in nodes)),
        gpus=gpus,
        cores=math.floor(min((_quantity(node, "cpu") for node in nodes), default=0.0)),
        memory_gib=min((_quantity(node, "memory") for node in nodes), default=0.0) / 1024**3,
        instance_type=settings.instance_type or (types.pop() if len(types) == 1 else ""),
        fabric=fabric,
        resources={GPU: str(gpus), **cards} if gpus else {},
        tolerations=_tolerations(nodes),
        capabilities=known.capabilities if known else (),
        notices=notice.service if notice else "",
        notice_s=notice.seconds if notice else _NOTICE_S,
        topology=topology_of(nodes),
        left_out=dict(left_out),
    )


def _unfit(node: Mapping[str, Any]) -> str:
    """Return why a run's pods cannot use a node; empty if they can."""
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
    if conditions.get("Ready") != "True":
        return "is not ready"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "is cordoned"
    taints = [taint["key"] for taint in spec.get("taints") or () if taint.get("effect") in _KEEPS_OFF]
    if any(key in _CONTROL for key in taints):
        return "is of the control plane"
    passing = [key for key in taints if key.startswith(_PASSING)]
    return f"is tainted {passing[0]}" if passing else ""


def _tolerations(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the tolerations with which a pod can run on any of these nodes."""
    taints = {
        (taint["key"], taint.get("value") or "", taint["effect"])
        for node in nodes
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in _KEEPS_OFF
    }
    return [
        {"key": key, "operator": "Equal", "value": value, "effect": effect}
        if value
        else {"key": key, "operator": "Exists", "effect": effect}
        for key, value, effect in sorted(taints)
    ]


def _cards(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a pod's requests for the fabric's resources of a whole node, as far as every node has them."""
    everywhere = set.intersection(*(set(_allocatable(node)) for node in nodes)) if nodes else set[str]()
    fabrics = _fabrics()
    names = sorted(name for name in everywhere if any(fabric.has_card(name) for fabric in fabrics))
    counts = {name: min(_count(node, name) for node in nodes) for name in names}
    found = {name: str(count) for name, count in counts.items() if count}
    used = [fabric for fabric in fabrics if any(fabric.has_card(name) for name in found)]
    beside = {name: size for fabric in used for name, size in fabric.resources.items() if name in everywhere}
    return {**found, **beside}


def _fabric(gpus: int, cards: Mapping[str, str]) -> str:
    if not gpus:
        return "none"
    return next((each.name for each in _fabrics() if any(each.has_card(name) for name in cards)), "tcp")


def _fabrics() -> list[Fabric]:
    return [fabric for facts in all_facts() for fabric in facts.fabrics]


def _notice(machine_ids: Collection[str]) -> PreemptionNotice | None:
    """Return the preemption notice that all of these nodes get; None if they differ or get none."""
    notices = [facts.notice for facts in all_facts() if facts.notice]
    return next((each for each in notices if {each.machine_ids} == set(machine_ids)), None)


def _allocatable(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    return found


def _quantity(node: Mapping[str, Any], name: str) -> float:
    return quantity(_allocatable(node).get(name, "0"))


def _count(node: Mapping[str, Any], name: str) -> int:
    return int(_quantity(node, name))


def _name(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["name"])
