"""A run in a Ray cluster of its own: a head without GPUs, and a worker on each node that trains.

Each worker offers Ray one core and its GPUs, and an agent asks for just that: so there is one agent a node.
The driver, at the head, is given no command line: the launch's file tells it what to start.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.manifests import contexts, placement
from cloudrec.manifests.build import Shape, training_pod, without_fabric
from cloudrec.manifests.commands import CONFIG, DRIVER, POD
from cloudrec.manifests.environment import GPUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.pods import Pod
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

LAUNCH_FILE = "launch.json"
RAY_VERSION = "2.60.0"  # of the image's extra `ray`; the operator chooses by it what it may ask of Ray
DASHBOARD_PORT = 8265
HEAD = "ray-head"
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}
_HEAD_RESOURCES = {"cpu": "2", "memory": "8Gi"}
# Ray would kill an agent with whatever it ends itself: it leaves that, and the agent is asked and waited for.
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_kill_child_processes_on_worker_exit": "false"}
_BEFORE_STOP = {"preStop": {"exec": {"command": [*POD, "ray", "--stop"]}}}


def job(workload: Workload, target: Target, profile: Profile, named: Mapping[str, Any]) -> contexts.RayJob:
    """Return the RayJob of a run.

    Args:
        workload: the run.
        target: the cluster.
        profile: the transport's.
        named: its name, namespace and labels.
    """
    shape = Shape(own=_RAY)
    worker = training_pod(workload, target, profile, replace(shape, lifecycle=_BEFORE_STOP))
    return contexts.RayJob(
        **named,
        entrypoint=shlex.join([*DRIVER, f"{CONFIG}/{LAUNCH_FILE}"]),
        backoff_limit=0,  # the driver forgives crashes; a whole new cluster would be tried for final ends too
        ray_version=RAY_VERSION,
        nodes=workload.nodes,
        gpus=target.resources.get(GPUS, "0"),
        head=_head(workload, target, profile, shape),
        worker=worker,
    )


def _head(workload: Workload, target: Target, profile: Profile, shape: Shape) -> Pod:
    """Return the head's pod: the same as a worker's, without what belongs to GPUs and their fabric."""
    light, bare = without_fabric(target, profile)
    elsewhere = replace(light, node_selector={}, tolerations=())
    head = training_pod(workload, elsewhere, bare, replace(shape, container=HEAD, role=HEAD))
    container = replace(head.containers[0], requests=_HEAD_RESOURCES, limits=_HEAD_RESOURCES)
    return replace(
        head,
        tolerations=placement.tolerations(target, gpus=False),
        affinity=None,
        containers=[container],
    )
