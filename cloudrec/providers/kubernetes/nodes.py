"""The nodes that train: those that are ready, that the selector chooses, and that have GPUs where any has."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.providers.kubernetes.settings import KubernetesSettings

GPU = "nvidia.com/gpu"
EFA, HUGE_PAGES = "vpc.amazonaws.com/efa", "hugepages-2Mi"
_RDMA = "rdma/"
_HUGE_PAGES = "5120Mi"  # of the 5128 pages that an EFA node has set aside
_TYPE = "node.kubernetes.io/instance-type"
_PINNED = "IPC_LOCK"  # without which a pod may pin 64 KiB, and InfiniBand pins gigabytes
# Taints that come and go with a node's condition, and those of nodes that are nobody's to train on.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
_CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_KEEPS_OFF = ("NoSchedule", "NoExecute")
# Whose notices of a preemption a node is given, and seconds until its end, by how its machine's id begins.
_NOTICES = {"aws": ("aws", 120), "azure": ("azure", 30), "gce": ("gcp", 15)}
_QUANTITY = re.compile(r"([0-9.]+(?:e[0-9]+)?)([a-zA-Z]*)")
_FACTORS = {
    "": 1.0,
    "m": 1e-3,
    **{unit: 1e3**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The nodes that train, of which a pod may have any.

    Attributes:
        names: theirs.
        gpus: GPUs that a pod may ask for on each; 0 trains on the CPU.
        cores: cores of each, as far as pods may have them.
        memory_gib: memory of each, likewise.
        instance_type: the cloud's name for all of them; empty where they differ.
        fabric: how their GPUs talk.
        resources: what a pod that has a whole one asks for.
        tolerations: what it must put up with.
        capabilities: what the fabric needs.
        notices: whose notices of a preemption come; empty for none.
        notice_s: seconds between such a notice and the end.
        left_out: names of nodes that fit but for what is told of each.
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
    notice_s: int = 30
    left_out: Mapping[str, str]


def pool_of(nodes: Iterable[Mapping[str, Any]], settings: KubernetesSettings) -> Pool:
    """Return the nodes that train, as the API server lists all of them."""
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
    """Return what a quantity of Kubernetes' says (500m, 16Gi) as a number."""
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
    notices, notice_s = _NOTICES.get(next(iter(who), ""), ("", 30)) if len(who) == 1 else ("", 30)
    return Pool(
        names=tuple(sorted(_name(node) for node in nodes)),
        gpus=gpus,
        cores=math.floor(min((_quantity(node, "cpu") for node in nodes), default=0.0)),
        memory_gib=min((_quantity(node, "memory") for node in nodes), default=0.0) / 1024**3,
        instance_type=settings.instance_type or (types.pop() if len(types) == 1 else ""),
        fabric=fabric,
        resources={GPU: str(gpus), **cards} if gpus else {},
        tolerations=_tolerations(nodes),
        capabilities=(_PINNED,) if fabric == "infiniband" else (),
        notices=notices,
        notice_s=notice_s,
        left_out=dict(left_out),
    )


def _unfit(node: Mapping[str, Any]) -> str:
    """Say why no pod of ours can be on a node; empty where one can."""
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
    """Return what a pod must put up with to be on any of these nodes."""
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
    """Return what of the fabric a pod that has a whole node asks for: what every one of them has."""
    everywhere = set.intersection(*(set(_allocatable(node)) for node in nodes)) if nodes else set[str]()
    names = sorted(name for name in everywhere if name == EFA or name.startswith(_RDMA))
    counts = {name: min(_count(node, name) for node in nodes) for name in names}
    found = {name: str(count) for name, count in counts.items() if count}
    return {**found, HUGE_PAGES: _HUGE_PAGES} if EFA in found and HUGE_PAGES in everywhere else found


def _fabric(gpus: int, cards: Mapping[str, str]) -> str:
    if not gpus:
        return "none"
    if EFA in cards:
        return "efa"
    return "infiniband" if any(name.startswith(_RDMA) for name in cards) else "tcp"


def _allocatable(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    return found


def _quantity(node: Mapping[str, Any], name: str) -> float:
    return quantity(_allocatable(node).get(name, "0"))


def _count(node: Mapping[str, Any], name: str) -> int:
    return int(_quantity(node, name))


def _name(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["name"])
