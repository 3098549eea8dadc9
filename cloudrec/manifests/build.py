"""Containers and pods of a run, by the cluster and the transport."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cloudrec.manifests import placement, shared
from cloudrec.manifests.commands import CONFIG
from cloudrec.manifests.environment import WORK, entries, run_environment
from cloudrec.manifests.names import ROLE, TRAINER, run_labels
from cloudrec.manifests.pods import Container, Daemon, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import HostPath, Profile, Sidecar

UNPRIVILEGED = 10001
_SHM_GIB = 2  # for a pod that trains nothing
_CONFIG_MODE = 0o444
_DAEMON_REQUESTS = {"cpu": "1", "memory": "1Gi"}  # no limits: its maker names none, and all ranks wait for it
_PROBE_PERIOD_S = 2


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the pods of one launcher differ from another's.

    Attributes:
        container: the container's name.
        role: what the pod is in its run.
        config: the ConfigMap that it reads; the run's own when empty.
        command: what it starts; None where an operator starts something else.
        args: the command's arguments.
        own: variables of this launcher.
        subdomain: the headless Service that names the pod.
        restart_policy: of the pod; None where the operator sets it.
        ports: ports by the names that an operator looks for.
        lifecycle: what is done before the container is stopped.
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


def training_pod(workload: Workload, target: Target, profile: Profile, shape: Shape) -> Pod:
    """Return the pod that trains on one node."""
    requests, limits = placement.resources(workload, target, profile)
    container = Container(
        name=shape.container,
        image=workload.image,
        command=shape.command,
        args=shape.args,
        environment=run_environment(workload, target, profile, shape.own),
        ports=shape.ports,
        requests=requests,
        limits=limits,
        lifecycle=shape.lifecycle,
        capabilities=sorted({*profile.capabilities, *target.capabilities}) or None,
        mounts=[
            *own_mounts(),
            *(_mount(each) for each in profile.host_paths),
            *shared.mounts(workload, target),
        ],
    )
    return Pod(
        labels={**run_labels(workload), **target.pod_labels, ROLE: shape.role},
        annotations={
            **placement.pod_annotations(target, profile),
            **shared.pod_annotations(workload, target),
        },
        service_account=target.service_account,
        token=False,
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
        volumes=[
            *own_volumes(shape.config or workload.run, shm_gib=_shared_memory(workload, profile)),
            *_host_volumes(profile),
            *shared.volumes(workload, target),
        ],
    )


def without_fabric(target: Target, profile: Profile) -> tuple[Target, Profile]:
    """Return a cluster and a transport as they are for a pod that has no GPU."""
    light = replace(target, resources={}, networks=(), capabilities=(), profile="")
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
    """Return where every container of ours has its configuration and the places it may write to."""
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
        shm_gib: the size of /dev/shm, which counts as the pod's memory.
    """
    return [
        {"name": "config", "configMap": {"name": config, "defaultMode": _CONFIG_MODE}},
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}},
    ]


def _shared_memory(workload: Workload, profile: Profile) -> int:
    """Return GiB of /dev/shm: what is in it is the pod's memory, so it is no more than half of that."""
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
    """Return one volume for each folder of the node, whichever containers see it."""
    paths = [*profile.host_paths, *(path for each in profile.sidecars for path in each.host_paths)]
    once = {path.name: path for path in paths}
    return [
        {"name": path.name, "hostPath": {"path": path.path, **({"type": path.kind} if path.kind else {})}}
        for path in once.values()
    ]
