"""A run in a separate Ray cluster: a head without GPUs, and a worker on each node that trains.

Each worker offers Ray one core and its GPUs, and an agent requests exactly these: so each node has one agent.
The driver, at the head, reads the command of the agents from launch.json.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests import placement
from cloudrec.kubernetes.manifests.commands import CONFIG, DRIVER, POD
from cloudrec.kubernetes.manifests.environment import GPUS
from cloudrec.kubernetes.manifests.pods import Shape, training_pod, without_fabric
from cloudrec.kubernetes.manifests.templates import contexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.templates.pods import Pod
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

LAUNCH_FILE = "launch.json"
RAY_VERSION = "2.60.0"  # of the image's extra `ray`; the operator uses the features of this version
DASHBOARD_PORT = 8265
HEAD = "ray-head"
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}
_HEAD_CORES, _HEAD_GIB = 2, 8
# By default Ray kills the agent together with its worker process, so before it has saved a checkpoint.
# Instead, `ray --stop` signals the agent and waits for it.
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_kill_child_processes_on_worker_exit": "false"}
_BEFORE_STOP = {"preStop": {"exec": {"command": [*POD, "ray", "--stop"]}}}


def job(
    workload: Workload, target: ClusterTarget, profile: Profile, named: Mapping[str, Any]
) -> contexts.RayJob:
    """Return the RayJob of a run.

    Args:
        workload: the run.
        target: the cluster.
        profile: the transport profile.
        named: the object's name, namespace and labels.
    """
    shape = Shape(own=_RAY)
    worker = training_pod(workload, target, profile, replace(shape, lifecycle=_BEFORE_STOP))
    return contexts.RayJob(
        **named,
        entrypoint=shlex.join([*DRIVER, f"{CONFIG}/{LAUNCH_FILE}"]),
        backoff_limit=0,  # the driver restarts after crashes; KubeRay would retry after a final exit code too
        ray_version=RAY_VERSION,
        nodes=workload.nodes,
        gpus=target.resources.get(GPUS, "0"),
        head=_head(workload, target, profile, shape),
        worker=worker,
        # On a managed cluster the run waits for capacity, and the keeper gives a part of its nodes back.
        start_timeout_s=None if workload.wishes else workload.start_timeout_s or None,
    )


def _head(workload: Workload, target: ClusterTarget, profile: Profile, shape: Shape) -> Pod:
    """Return the head's pod: a worker's pod without GPUs, fabric and the GPU nodes' placement."""
    light, bare = without_fabric(target, profile)
    elsewhere = replace(light, node_selector={}, tolerations=())
    head = training_pod(workload, elsewhere, bare, replace(shape, container=HEAD, role=HEAD))
    container = replace(
        head.containers[0],
        requests=_head_resources(target.cpus - workload.cpus, target.memory_gib - workload.memory_gib)
        if target.cpus and target.memory_gib
        else _head_resources(),
        limits=_head_resources(),
    )
    return replace(
        head,
        tolerations=placement.tolerations(target, gpus=False),
        affinity=None,
        containers=[container],
    )


def _head_resources(cores: int = _HEAD_CORES, memory_gib: int = _HEAD_GIB) -> dict[str, str]:
    """Return the head's cores and memory, within what a worker leaves of its node: the head may be there."""
    return {
        "cpu": str(max(1, min(cores, _HEAD_CORES))),
        "memory": f"{max(1, min(memory_gib, _HEAD_GIB))}Gi",
    }
