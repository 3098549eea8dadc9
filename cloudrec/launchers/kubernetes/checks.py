"""Checks before a launch: the cluster, its operator, its nodes. They only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, UsageError
from cloudrec.kubernetes import devices
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.client.target import LEVELS, POD_SECURITY, pod_security
from cloudrec.kubernetes.manifests import placement
from cloudrec.kubernetes.quantities import amount
from cloudrec.kubernetes.queues.admission import level_of, refusals
from cloudrec.kubernetes.queues.demand import demands_of
from cloudrec.kubernetes.queues.kinds import LOCAL_QUEUE
from cloudrec.launchers.kubernetes.context import ANYWHERE, REQUIRED, Settings
from cloudrec.launchers.kubernetes.run_state import is_ready
from cloudrec.launchers.kubernetes.workloads import disk_gib, profile_for, workload_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator

_DISK = "ephemeral-storage"
_SHOWN = 4  # nodes that a message names


def check_cluster(kube: Kube, engine: JobOperator, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if the cluster cannot run the spec with this operator."""
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
            f"cloudrec may not create a {kind} in namespace {target.namespace} of cluster {spec.cluster!r}",
            remedy=f"have an administrator grant the verb 'create' on {kind} there",
        )
    _check_claims(kube, target, spec)
    _check_level(kube, target, spec)
    _check_quota(kube, target, spec)
    if not Settings.of(spec.settings).wait_for_nodes and not target.is_managed:
        check_nodes(kube, target, spec)


def _check_claims(kube: Kube, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if the run's pods need claims for devices that cannot be made."""
    if not target.claims:
        return
    kind = devices.TEMPLATE.rpartition("/")[2]
    if not kube.kinds.has(devices.TEMPLATE):
        raise PreflightError(
            f"cluster {spec.cluster!r} gave its devices by dynamic resource allocation, and has "
            f"no {kind} of v1",
            remedy=f"cloudrec up {spec.provider} --cluster {spec.cluster} reads again how it gives them",
        )
    if not kube.may("create", devices.TEMPLATE, namespace=target.namespace):
        raise PreflightError(
            f"cloudrec may not create a {kind} in namespace {target.namespace} of cluster {spec.cluster!r}, "
            "by which its pods claim their devices",
            remedy=f"have an administrator grant the verb 'create' on {kind} there",
        )


def check_place(kube: Kube, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if the cluster lacks the runs' namespace or service account; `up` makes both."""
    account = kube.get("ServiceAccount", target.service_account, namespace=target.namespace)
    if account is None:
        raise PreflightError(
            f"cluster {spec.cluster!r} has no service account {target.service_account!r} in namespace "
            f"{target.namespace!r}, as which its pods run",
            remedy=f"cloudrec up {spec.provider} --cluster {spec.cluster}",
        )


def _check_level(kube: Kube, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if the namespace's pod security level forbids what the run's pods need."""
    # The API would accept the Job, and then refuse each of its pods.
    try:
        space = kube.get("Namespace", target.namespace)
    except DeniedError:
        return  # without the right to read namespaces; the Job's events will name a refused pod
    level = (((space or {}).get("metadata") or {}).get("labels") or {}).get(POD_SECURITY, LEVELS[-1])
    needed = pod_security(target.fabric)
    if level in LEVELS and LEVELS.index(level) < LEVELS.index(needed):
        raise PreflightError(
            f"namespace {target.namespace!r} enforces the pod security level {level!r}; pods that use the "
            f"fabric {target.fabric!r} need {needed!r}",
            remedy=f"cloudrec up {spec.provider} --cluster {spec.cluster} sets it in a namespace it made; "
            f"else: kubectl label namespace {target.namespace} {POD_SECURITY}={needed} --overwrite",
        )


def _check_quota(kube: Kube, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if a quota of the namespace has no room for the run's pods."""
    # The API would accept the Job, and then refuse pods; those that fit would hold their nodes for nothing.
    try:
        quotas = kube.list("ResourceQuota", namespace=target.namespace)
    except DeniedError:
        return  # without the right to read quotas; the Job's events will name a refused pod
    if not quotas:
        return
    workload = workload_of(spec, launch=1, owner="")
    requests, limits = placement.resources(workload, target, profile_for(target))
    for quota in quotas:
        if (quota.get("spec") or {}).get("scopes") or (quota.get("spec") or {}).get("scopeSelector"):
            continue  # it counts some of the pods only
        used = (quota.get("status") or {}).get("used") or {}
        for name, hard in ((quota.get("spec") or {}).get("hard") or {}).items():
            each = _counted(name, requests, limits or {})
            left = amount(str(hard)) - amount(str(used.get(name, "0")))
            if each * spec.nodes > left:
                raise PreflightError(
                    f"the quota {quota['metadata']['name']} of namespace {target.namespace} leaves "
                    f"{_quantity(name, left)} of {name} ({hard} in all); the run's {spec.nodes} pods need "
                    f"{_quantity(name, each * spec.nodes)}",
                    remedy=_fitting(name, left / spec.nodes),
                )


def check_queue(
    kube: Kube, target: ClusterTarget, spec: RunSpec, objects: Sequence[Mapping[str, Any]]
) -> str:
    """Return the part of the network in which Kueue places the run; empty if it does not.

    Args:
        kube: the cluster.
        target: the cluster's nodes.
        spec: the run.
        objects: the run's objects, whose pods Kueue must be able to admit.

    Raises:
        PreflightError: Kueue could never admit the run, which would wait without end.
    """
    settings = Settings.of(spec.settings)
    if not settings.queue:
        return ""
    if not kube.kinds.has(LOCAL_QUEUE):
        raise PreflightError(
            f"train.settings.queue is {settings.queue!r}, and cluster {spec.cluster!r} "
            "has no Kueue with v1beta2",
            remedy="install it: cloudrec addons install kueue; or leave the queue out",
        )
    demands = demands_of(objects, spec.nodes)
    found = refusals(kube, target.namespace, settings.queue, demands, may_lack_nodes=settings.wait_for_nodes)
    if found:
        raise PreflightError(found[0].found, remedy=found[0].remedy)
    level = "" if settings.topology == ANYWHERE else level_of(kube, target.namespace, settings.queue)
    if settings.topology == REQUIRED and not level:
        raise PreflightError(
            f"train.settings.topology is {REQUIRED!r}, and the queue {settings.queue!r} has no Topology",
            remedy="leave it out; or `cloudrec addons install kueue-queues`, if the nodes have labels of the "
            "network's parts",
        )
    return level


def _counted(name: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> float:
    """Return how much of a quota one pod takes; 0 for a quota of other things."""
    if name == "pods":
        return 1.0
    part, _, resource = name.partition(".") if name not in ("cpu", "memory") else ("requests", "", name)
    given = {"requests": requests, "limits": limits}.get(part, {})
    return amount(str(given.get(resource, "0")))


def _quantity(name: str, value: float) -> str:
    return f"{value / 1024**3:.4g}Gi" if name.endswith(("memory", _DISK)) else f"{value:.4g}"


def _fitting(name: str, each: float) -> str:
    """Return the remedy for a quota that leaves this much for each pod."""
    more = "ask who administers the namespace for a larger quota"
    if name.endswith("memory") and each >= 1024**3:
        return f"--set train.settings.memory_gib={int(each / 1024**3)}, or {more}"
    if name.endswith("cpu") and each >= 1:
        return f"--set train.settings.cpus={int(each)}, or {more}"
    return f"wait for other pods to end, use fewer --nodes, or {more}"


def check_name(kube: Kube, engine: JobOperator, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise UsageError if the cluster has an object of the run's name that this run did not create."""
    job = engine.get(kube, spec.name, target.namespace)
    if job is None:
        return
    labels = job["metadata"].get("labels") or {}
    origin = "another run's" if labels.get("cloudrec/run") == spec.name else "not made by cloudrec"
    raise UsageError(
        f"cluster {spec.cluster!r} has a {job['kind']} named {spec.name!r} in namespace {target.namespace} "
        f"already, {origin}",
        remedy="choose another --name",
    )


def check_nodes(kube: Kube, target: ClusterTarget, spec: RunSpec) -> None:
    """Raise PreflightError if too few nodes offer what a pod requests; the message lists the nodes."""
    found = kube.list("Node", labels=dict(target.node_selector))
    nodes = devices.with_devices(kube, found, target.claims)
    usable = [Room.of(node) for node in nodes if _is_usable(node, target)]
    wanted = {**target.resources, **_disk(target, spec)}
    fit = [room for room in usable if room.fits(wanted)]
    needed = spec.nodes if target.resources else 1  # pods without extended resources may share a node
    if len(fit) < needed:
        raise PreflightError(
            f"the run needs {needed} nodes with {_requested(wanted)} each, and cluster "
            f"{spec.cluster!r} has {len(fit)}: {_offered(usable, len(nodes), wanted, target)}",
            remedy=_remedy(usable, target, wanted),
        )
    _check_free(kube, target, spec, fit)


def _disk(target: ClusterTarget, spec: RunSpec) -> dict[str, str]:
    """Return the ephemeral storage that a pod of the run requests."""
    gib = disk_gib(spec.staged_gb, target)
    return {_DISK: f"{gib}Gi"} if gib else {}


@dataclass(frozen=True, kw_only=True)
class Room:
    """The resources that a node offers to pods."""

    name: str
    allocatable: Mapping[str, str]

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Room:
        """Return the resources of a node object."""
        status = node.get("status") or {}
        return cls(name=node["metadata"]["name"], allocatable=status.get("allocatable") or {})

    def has(self, resource: str) -> float:
        """Return the amount of a resource; 0 if the node has none."""
        return amount(str(self.allocatable.get(resource, "0")))

    def fits(self, wanted: Mapping[str, str]) -> bool:
        """Return whether the node offers all resources that a pod requests."""
        return all(self.has(resource) >= amount(str(value)) for resource, value in wanted.items())


def _is_usable(node: Mapping[str, Any], target: ClusterTarget) -> bool:
    spec = node.get("spec") or {}
    if not is_ready(node) or spec.get("unschedulable"):
        return False
    return all(_is_tolerated(taint, target) for taint in spec.get("taints") or [])


def _is_tolerated(taint: Mapping[str, Any], target: ClusterTarget) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    if taint.get("key") in target.resources:
        return True  # manifests tolerate a taint that has the name of a resource they request
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


def _check_free(kube: Kube, target: ClusterTarget, spec: RunSpec, fit: Sequence[Room]) -> None:
    """Raise PreflightError if other pods use the devices that the run requests."""
    wanted = {name: amount(str(value)) for name, value in target.resources.items() if "/" in name}
    if not wanted:
        return
    try:
        pods = kube.list("Pod", fields="status.phase!=Succeeded,status.phase!=Failed")
    except DeniedError:
        return  # without the right to list all pods; the scheduler will report what is missing
    held = devices.held(kube, target.claims, run=spec.name)
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
    if len(free) < spec.nodes:
        raise PreflightError(
            f"the run needs {spec.nodes} nodes with {_requested(target.resources)} free, and "
            f"only {len(free)} of {len(fit)} have them: other pods use the rest",
            remedy="wait for other runs (`cloudrec status`), stop one, or bring up more nodes; with "
            "train.settings.wait_for_nodes the run waits in the cluster",
        )


def _add(held: dict[str, float], pod: Mapping[str, Any], wanted: Mapping[str, float]) -> None:
    for container in (pod.get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        # Kubernetes takes the limit for the request of a device that states only a limit.
        requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name in wanted:
            held[name] = held.get(name, 0.0) + amount(str(requests.get(name, "0")))


def _requested(resources: Mapping[str, str]) -> str:
    return ", ".join(f"{value} {name}" for name, value in resources.items()) or "room for a pod"


def _offered(usable: Sequence[Room], total: int, wanted: Mapping[str, str], target: ClusterTarget) -> str:
    if not total:
        chosen = ", ".join(f"{key}={value}" for key, value in target.node_selector.items())
        return f"none with the labels {chosen}" if chosen else "none at all"
    if not usable:
        return f"none of its {total} nodes is ready, and free of taints that the run does not tolerate"
    shown = [
        f"{room.name} offers " + ", ".join(f"{_quantity(name, room.has(name))} {name}" for name in wanted)
        for room in usable[:_SHOWN]
    ]
    more = f" and {len(usable) - _SHOWN} more" if len(usable) > _SHOWN else ""
    return "; ".join(shown) + more


def _remedy(usable: Sequence[Room], target: ClusterTarget, wanted: Mapping[str, str]) -> str:
    for resource in target.resources:
        if usable and "/" in resource and not any(room.has(resource) for room in usable):
            return (
                f"no node offers {resource}: install its device plugin with `cloudrec addons install`, "
                "and check with `cloudrec doctor --cluster`"
            )
    if _DISK in wanted and usable and not any(room.fits({_DISK: wanted[_DISK]}) for room in usable):
        return (
            "read the dataset from elsewhere (--data-tier lustre or bucket), or use nodes with larger disks"
        )
    return (
        "bring up more nodes, request fewer, or let the run wait for an autoscaler's: "
        "--set train.settings.wait_for_nodes=true"
    )
