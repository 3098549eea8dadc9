"""A run as Kubernetes' launchers need it: its workload, its cluster, its results, its connection."""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import SpecError
from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target
from cloudrec.launch._remote.results import checkpoints_of, results_of
from cloudrec.launch.outputs import flag_value
from cloudrec.manifests.workload import Workload
from cloudrec.plan.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.launch.runspec import RunSpec
    from cloudrec.plan.transport import Profile

RUN_LABEL, LAUNCH_LABEL = "cloudrec/run", "cloudrec/launch"
_POD_PYTHON = "python"  # of the image, whatever ours is called
_SET_HERE = ("output_dir", "config")
_connections: dict[tuple[str, str, str], Kube] = {}
_SHARE = 0.85  # of a node's cores and memory: the rest is the node's own, and of what runs beside
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`train.settings` as Kubernetes' launchers understand it.

    Attributes:
        cpus: cores that a pod asks for; 0 for none.
        memory_gib: memory that a pod asks for; 0 for none.
        priority_class: the pods' priority class.
        queue: Kueue's local queue.
        probe: whether a small pod looks at the data and the storage before the launch.
        wait_for_nodes: launch even where too few nodes are there now: an autoscaler brings them.
    """

    cpus: int = 0
    memory_gib: int = 0
    priority_class: str = ""
    queue: str = ""
    probe: bool = True
    wait_for_nodes: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Read them; SpecError names what is not known, or of another type."""
        kinds = {each.name: type(each.default) for each in fields(cls)}
        for name, value in given.items():
            if name not in kinds:
                raise SpecError(
                    f"train.settings has {name!r}, which no launcher of Kubernetes knows",
                    remedy=f"it knows: {', '.join(sorted(kinds))}",
                )
            if type(value) is not kinds[name] or (isinstance(value, int) and value < 0):
                raise SpecError(
                    f"train.settings.{name} is {value!r}; it must be a {kinds[name].__name__}, not negative"
                )
        return cls(**given)


def target_of(spec: RunSpec) -> Target:
    """Return the cluster on which a run is; SpecError where the run's spec tells of none."""
    if not spec.target:
        raise SpecError(
            f"the run {spec.name!r} tells of no Kubernetes cluster",
            remedy=f"cluster {spec.cluster!r} of {spec.provider!r} has none: choose another launcher",
        )
    return Target.of(spec.target)


def profile_for(target: Target) -> Profile:
    """Return what pods need for the fabric between a cluster's GPU nodes."""
    return profile_of(target.fabric, target.instance_type)


def grace_of(spec: RunSpec, target: Target) -> int:
    """Return the seconds that a pod has to end in: on machines that may be taken, no more than their notice.

    A pod that believes in more would train on, and be killed with its last steps unsaved: the kubelet cuts
    a longer terminationGracePeriodSeconds short when its machine goes.
    """
    wanted = math.ceil(spec.stop_grace_s)
    return min(wanted, target.notice_s) if target.notices else wanted


def config_text(spec: RunSpec) -> str:
    """Return the text of trainer.yaml as the pods read it."""
    return yaml.safe_dump(dict(spec.trainer_config), sort_keys=False)


def workload_of(spec: RunSpec, *, launch: int, owner: str) -> Workload:
    """Return one launch of a run as manifests see it."""
    settings, target = Settings.of(spec.settings), target_of(spec)
    program, *words = spec.trainer_command
    command = (_POD_PYTHON if program == sys.executable else program, *words)
    return Workload(
        run=spec.name,
        cluster=spec.cluster,
        owner=owner,
        launch=launch,
        image=spec.image,
        nodes=spec.nnodes,
        min_nodes=spec.min_nodes or spec.nnodes,
        processes=spec.nproc_per_node,
        command=command,
        flags=_flags(spec),
        config=config_text(spec),
        environment=dict(spec.environment),
        results=results_of(spec),
        max_restarts=spec.max_restarts,
        grace_s=grace_of(spec, target),
        cpus=settings.cpus or int(target.cpus * _SHARE),
        memory_gib=settings.memory_gib or int(target.memory_gib * _SHARE),
        allow_tcp=spec.allow_tcp,
        priority_class=settings.priority_class,
        queue=settings.queue,
    )


def _flags(spec: RunSpec) -> tuple[str, ...]:
    """Return the user's flags; a choice of checkpoints in the file must win over the usual flag, too."""
    if flag_value(spec.trainer_flags, "checkpoint_dir") is not None or not spec.storage:
        return spec.trainer_flags
    named = checkpoints_of(spec)
    usual = named == f"{results_of(spec)}/checkpoints"
    return spec.trainer_flags if usual else (*spec.trainer_flags, "--checkpoint_dir", named)


def refuse_flags(spec: RunSpec) -> None:
    """Refuse flags of the trainer that are set by cloudrec."""
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise SpecError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files go to the cluster's storage",
                remedy=f"leave --{flag} out",
            )


def connect(target: Target) -> Kube:
    """Return this process's connection to a cluster; its identity is checked when it is made."""
    key = (target.kubeconfig, target.context, target.identity)
    with _lock:
        if key not in _connections:
            _connections[key] = Kube.connect(target)
        return _connections[key]


def disconnect() -> None:
    """End all connections of this process."""
    with _lock:
        for kube in _connections.values():
            kube.close()
        _connections.clear()
