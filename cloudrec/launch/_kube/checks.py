"""What is looked at before a launch: the cluster, its operator, its nodes. Only reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.causes import amount
from cloudrec.errors import PreflightError, UsageError
from cloudrec.kube.errors import DeniedError
from cloudrec.launch._kube.context import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target
    from cloudrec.launch._kube.engine import Engine
    from cloudrec.launch.runspec import RunSpec

_SHOWN = 4


def check_cluster(kube: Kube, engine: Engine, target: Target, spec: RunSpec) -> None:
    """Refuse what cannot work there: PreflightError with what there is."""
    if not kube.kinds.has(engine.kind):
        kind = engine.kind.rpartition("/")[2]
        raise PreflightError(
            f"the launcher {engine.name!r} needs an operator that cluster {spec.cluster!r} does not have: it "
            f"knows no {kind}",
            remedy=f"install it: cloudrec addons install {engine.addon}; or use --launcher torchrun",
        )
    kind = engine.kind.rpartition("/")[2]
    if not kube.may("create", engine.kind, namespace=target.namespace):
        raise PreflightError(
            f"we may not create a {kind} in namespace {target.namespace} of cluster {spec.cluster!r}",
            remedy=f"have an administrator grant the verb 'create' on {kind} there",
        )
    if not Settings.of(spec.settings).wait_for_nodes:
        check_nodes(kube, target, spec)


def check_name(kube: Kube, engine: Engine, target: Target, spec: RunSpec) -> None:
    """Refuse a name that something in the cluster has which is not this run's."""
    job = engine.get(kube, spec.name, target.namespace)
    if job is None:
        return
    labels = job["metadata"].get("labels") or {}
    whose = "another run's" if labels.get("cloudrec/run") == spec.name else "not of cloudrec's making"
    raise UsageError(
        f"cluster {spec.cluster!r} has a {job['kind']} named {spec.name!r} in namespace {target.namespace} "
        f"already, {whose}",
        remedy="choose another --name",
    )


def check_nodes(kube: Kube, target: Target, spec: RunSpec) -> None:
    """Refuse a cluster that has not as many nodes with what a pod asks for; it tells what there is."""
    nodes = kube.list("Node", labels=dict(target.node_selector))
    alike = [Room.of(node) for node in nodes if _is_usable(node, target)]
    fit = [room for room in alike if room.fits(target.resources)]
    needed = spec.nnodes if target.resources else 1  # pods that ask for nothing whole may share a node
    if len(fit) < needed:
        raise PreflightError(
            f"the run needs {needed} nodes with {_asked(target.resources)} each, and cluster "
            f"{spec.cluster!r} has {len(fit)}: {_told(alike, len(nodes), target)}",
            remedy=_remedy(alike, target),
        )
    _check_free(kube, target, spec, fit)


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a node offers to pods."""

    name: str
    allocatable: Mapping[str, str]

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Room:
        """Read it from a node."""
        status = node.get("status") or {}
        return cls(name=node["metadata"]["name"], allocatable=status.get("allocatable") or {})

    def has(self, resource: str) -> float:
        """Return how much of a resource it offers."""
        return amount(str(self.allocatable.get(resource, "0")))

    def fits(self, wanted: Mapping[str, str]) -> bool:
        """Tell whether it offers all that a pod asks for."""
        return all(self.has(resource) >= amount(str(value)) for resource, value in wanted.items())


def is_ready(node: Mapping[str, Any]) -> bool:
    """Tell whether a node says that it is well."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _is_usable(node: Mapping[str, Any], target: Target) -> bool:
    spec = node.get("spec") or {}
    if not is_ready(node) or spec.get("unschedulable"):
        return False
    return all(_is_tolerated(taint, target) for taint in spec.get("taints") or [])


def _is_tolerated(taint: Mapping[str, Any], target: Target) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    if taint.get("key") in target.resources:
        return True  # manifests tolerate the taint that is named as what they ask for
    for each in target.tolerations:
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        exists = each.get("operator") == "Exists"
        if exists and each.get("key") in (None, "", taint.get("key")):
            return True
        if each.get("key") == taint.get("key") and (
            exists or each.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def _check_free(kube: Kube, target: Target, spec: RunSpec, fit: Sequence[Room]) -> None:
    """Refuse where other work holds what the run asks for."""
    wanted = {name: amount(str(value)) for name, value in target.resources.items() if "/" in name}
    if not wanted:
        return
    try:
        pods = kube.list("Pod", fields="status.phase!=Succeeded,status.phase!=Failed")
    except DeniedError:
        return  # whoever may not see others' pods learns it from the scheduler
    held: dict[str, dict[str, float]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        node = (pod.get("spec") or {}).get("nodeName")
        if node and labels.get("cloudrec/run") != spec.name:
            _add(held.setdefault(node, {}), pod, wanted)
    free = [
        room
        for room in fit
        if all(
            room.has(name) - held.get(room.name, {}).get(name, 0.0) >= need for name, need in wanted.items()
        )
    ]
    if len(free) < spec.nnodes:
        raise PreflightError(
            f"the run needs {spec.nnodes} nodes with {_asked(target.resources)} free, and only {len(free)} "
            f"of {len(fit)} have them: other pods hold the rest",
            remedy="wait for other runs (`cloudrec status`), stop one, or bring up more nodes; with "
            "train.settings.wait_for_nodes the run waits in the cluster",
        )


def _add(held: dict[str, float], pod: Mapping[str, Any], wanted: Mapping[str, float]) -> None:
    for container in (pod.get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name in wanted:
            held[name] = held.get(name, 0.0) + amount(str(asked.get(name, "0")))


def _asked(resources: Mapping[str, str]) -> str:
    return ", ".join(f"{value} {name}" for name, value in resources.items()) or "room for a pod"


def _told(alike: Sequence[Room], total: int, target: Target) -> str:
    if not total:
        chosen = ", ".join(f"{key}={value}" for key, value in target.node_selector.items())
        return f"none with the labels {chosen}" if chosen else "none at all"
    if not alike:
        return f"none of its {total} nodes is ready, and free of taints that the run does not tolerate"
    shown = [
        f"{room.name} offers " + ", ".join(f"{room.has(name):g} {name}" for name in target.resources)
        for room in alike[:_SHOWN]
    ]
    more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
    return "; ".join(shown) + more


def _remedy(alike: Sequence[Room], target: Target) -> str:
    for resource in target.resources:
        if alike and "/" in resource and not any(room.has(resource) for room in alike):
            return (
                f"no node offers {resource}: install its device plugin with `cloudrec addons install`, "
                "and see `cloudrec doctor --cluster`"
            )
    return (
        "bring up more nodes, ask for fewer, or let the run wait for an autoscaler's: "
        "--set train.settings.wait_for_nodes=true"
    )
