"""The pods of a run and their containers, by cluster and transport profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes import topology
from cloudrec.kubernetes.client.target import DEAD_NODE
from cloudrec.kubernetes.manifests import placement, shared
from cloudrec.kubernetes.manifests.commands import CONFIG
from cloudrec.kubernetes.manifests.environment import WORK, entries, run_environment
from cloudrec.kubernetes.manifests.names import (
    METRICS,
    PREFERRED_LEVEL,
    REQUIRED_LEVEL,
    ROLE,
    TRAINER,
    run_labels,
)
from cloudrec.kubernetes.manifests.setup import urls_of, with_setup
from cloudrec.kubernetes.manifests.templates.pods import Container, Daemon, Pod
from cloudrec_contract.exit_codes import KILLED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import HostPath, Profile, Sidecar

UNPRIVILEGED = 10001
DATA = f"{WORK}/data"  # the agent's folder for datasets
_LOCAL = "local-disks"
_SHM_GIB = 2  # for a pod that does not train
_CONFIG_MODE = 0o444
# It is optional, since a launcher that may not list nodes does not write it.
_TOPOLOGY = {
    "name": "topology",
    "configMap": {"name": topology.NAME, "defaultMode": _CONFIG_MODE, "optional": True},
}
# Without limits: the vendor names none, and a throttled daemon would delay all ranks.
# Not after STOPPED: its machine is about to end, so that another pod must begin elsewhere, or it was stopped.
_AFTER_A_SIGNAL = {"action": "Restart", "exitCodes": {"operator": "In", "values": list(KILLED)}}
_DAEMON_REQUESTS = {"cpu": "1", "memory": "1Gi"}
_PROBE_PERIOD_S = 2


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The values in which the pods of the launchers differ.

    Attributes:
        container: the container's name.
        role: the value of the label `cloudrec/role`.
        config: the ConfigMap that it mounts; empty for the run's.
        command: its command; None if the operator sets it.
        args: the command's arguments; None if the operator sets them.
        own: further variables.
        subdomain: the headless Service of the pod's DNS name; None without one.
        restart_policy: the pod's restart policy; None if the operator sets it.
        ports: ports with the names that the operator requires.
        lifecycle: the container's lifecycle hooks.
        in_place: whether its container is started again in the pod after a signal has ended it.
    """

    container: str = "trainer"
    role: str = TRAINER
    config: str = ""
    command: Sequence[str] | None = None
    args: Sequence[str] | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    subdomain: str | None = None
    restart_policy: str | None = "Never"
    ports: Sequence[Mapping[str, Any]] | None = None
    lifecycle: Mapping[str, Any] | None = None
    in_place: bool = False


def training_pod(workload: Workload, target: ClusterTarget, profile: Profile, shape: Shape) -> Pod:
    """Return the pod that trains on one node."""
    requests, limits = placement.resources(workload, target, profile)
    claims = placement.device_requests(target)
    container = Container(
        name=shape.container,
        image=workload.image,
        command=shape.command,
        args=shape.args,
        # A script's requirements come from the same package index as the packages of the setup.
        environment=run_environment(workload, target, profile, {**urls_of(workload.setup), **shape.own}),
        ports=[*(shape.ports or ()), *metrics_ports(_metrics_port(workload, shape))] or None,
        requests=requests,
        limits=limits,
        claims=[{"name": name} for name in claims] or None,
        lifecycle=shape.lifecycle,
        capabilities=sorted({*profile.capabilities, *target.capabilities}) or None,
        restart_policy="Never" if shape.in_place else None,
        restart_rules=[_AFTER_A_SIGNAL] if shape.in_place else None,
        mounts=[
            *own_mounts(),
            *(
                [{"name": "topology", "mountPath": topology.FOLDER, "readOnly": True}]
                if target.topology
                else []
            ),
            *_local_mounts(target),
            *(_mount(each) for each in profile.host_paths),
            *shared.mounts(workload, target),
        ],
    )
    pod = Pod(
        labels={**run_labels(workload), **target.pod_labels, ROLE: shape.role},
        annotations={
            **placement.pod_annotations(target, profile),
            **shared.pod_annotations(workload, target),
            **({DEAD_NODE: workload.dead_node} if workload.dead_node else {}),
            **_level(workload, shape),
            **scraped(_metrics_port(workload, shape)),
        },
        service_account=target.service_account,
        token=False,  # the trainer calls no Kubernetes API
        restart_policy=shape.restart_policy,
        grace_s=workload.grace_s,
        priority_class=workload.priority_class or None,
        subdomain=shape.subdomain,
        node_selector=dict(target.node_selector) or None,
        tolerations=placement.tolerations(target),
        affinity=placement.one_a_node(workload, target),
        non_root=profile.user != 0,
        user=profile.user,
        sidecars=[_daemon(each) for each in profile.sidecars] or None,
        containers=[container],
        claims=[
            {"name": name, "resourceClaimTemplateName": placement.claim_template(workload.run, name)}
            for name in claims
        ]
        or None,
        volumes=[
            *own_volumes(shape.config or workload.run, shm_gib=_shared_memory(workload, profile)),
            *([_TOPOLOGY] if target.topology else []),
            *_local_volumes(target),
            *_host_volumes(profile),
            *shared.volumes(workload, target),
        ],
    )
    return with_setup(pod, workload.setup, workload.environment)


def _metrics_port(workload: Workload, shape: Shape) -> int:
    return workload.metrics_port if shape.role == TRAINER else 0


def metrics_ports(port: int) -> list[dict[str, Any]]:
    """Return the port by whose name a PodMonitor finds a pod's metrics; none for 0."""
    return [{"name": METRICS, "containerPort": port}] if port else []


def scraped(port: int) -> dict[str, str]:
    """Return the annotations by which a Prometheus with the usual rules finds a pod's metrics; {} for 0."""
    if not port:
        return {}
    scrape = "prometheus.io"
    return {f"{scrape}/scrape": "true", f"{scrape}/port": str(port), f"{scrape}/path": "/metrics"}


def _level(workload: Workload, shape: Shape) -> dict[str, str]:
    """Return the annotation for Kueue of pods that train."""
    if not workload.level or shape.role != TRAINER:
        return {}
    return {REQUIRED_LEVEL if workload.level_required else PREFERRED_LEVEL: workload.level}


def without_fabric(target: ClusterTarget, profile: Profile) -> tuple[ClusterTarget, Profile]:
    """Return the target and the profile for a pod without GPUs, so without fabric and privileges."""
    light = replace(
        target, resources={}, claims=(), networks=(), capabilities=(), profile="", local_path="", disk_gb=0
    )
    bare = replace(
        profile,
        settings=(),
        resources={},
        shm_gib=_SHM_GIB,
        user=UNPRIVILEGED,
        capabilities=(),
        host_paths=(),
        sidecars=(),
        annotations={},
        script="",
    )
    return light, bare


def own_mounts() -> list[dict[str, Any]]:
    """Return the mounts of every container: its configuration, and the folders that it may write to."""
    return [
        {"name": "config", "mountPath": CONFIG, "readOnly": True},
        {"name": "work", "mountPath": WORK},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of the pod
    ]


def own_volumes(config: str, *, shm_gib: int) -> list[dict[str, Any]]:
    """Return the volumes of `own_mounts`.

    Args:
        config: the ConfigMap.
        shm_gib: the size of /dev/shm in GiB, which counts towards the pod's memory.
    """
    return [
        {"name": "config", "configMap": {"name": config, "defaultMode": _CONFIG_MODE}},
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}},
    ]


def _local_mounts(target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the mount of the node's local disks, where the agent stages datasets."""
    return [{"name": _LOCAL, "mountPath": DATA}] if target.local_path else []


def _local_volumes(target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the volume of `_local_mounts`.

    With the type Directory a pod waits until the add-on has mounted the disks there; it would otherwise fill
    the disk below.
    """
    if not target.local_path:
        return []
    return [{"name": _LOCAL, "hostPath": {"path": target.local_path, "type": "Directory"}}]


def _shared_memory(workload: Workload, profile: Profile) -> int:
    """Return the size of /dev/shm in GiB: at most half of the pod's memory, towards which it counts."""
    return min(profile.shm_gib, max(1, workload.memory_gib // 2)) if workload.memory_gib else profile.shm_gib


def _daemon(sidecar: Sidecar) -> Daemon:
    return Daemon(
        name=sidecar.name,
        image=sidecar.image,
        command=sidecar.command,
        environment=entries(sidecar.environment),
        requests=_DAEMON_REQUESTS,
        startup_probe=_startup(sidecar),
        capabilities=sidecar.capabilities or None,
        mounts=[_mount(each) for each in sidecar.host_paths],
    )


def _startup(sidecar: Sidecar) -> dict[str, Any] | None:
    if not sidecar.ready:
        return None
    tries = max(1, sidecar.ready_s // _PROBE_PERIOD_S)
    return {
        "exec": {"command": list(sidecar.ready)},
        "periodSeconds": _PROBE_PERIOD_S,
        "failureThreshold": tries,
    }


def _mount(path: HostPath) -> dict[str, Any]:
    return {
        "name": path.name,
        "mountPath": path.mount,
        **({"readOnly": True} if path.read_only else {}),
    }


def _host_volumes(profile: Profile) -> list[dict[str, Any]]:
    """Return one volume for each folder of the node, even if several containers mount it."""
    paths = [*profile.host_paths, *(path for each in profile.sidecars for path in each.host_paths)]
    once = {path.name: path for path in paths}
    return [
        {"name": path.name, "hostPath": {"path": path.path, **({"type": path.kind} if path.kind else {})}}
        for path in once.values()
    ]
