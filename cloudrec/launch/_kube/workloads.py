"""A run as manifests see it: what its pods run, ask for and need for the fabric between their nodes."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import yaml

from cloudrec.errors import SpecError
from cloudrec.launch._kube.context import Settings, target_of
from cloudrec.launch._remote.results import checkpoints_of, results_of
from cloudrec.launch.outputs import flag_value
from cloudrec.manifests.workload import Workload
from cloudrec.plan.transport import profile_of

if TYPE_CHECKING:
    from cloudrec.kube.target import Target
    from cloudrec.launch.runspec import RunSpec
    from cloudrec.plan.transport import Profile

_POD_PYTHON = "python"  # of the image, whatever ours is called
_SET_HERE = ("output_dir", "config")
_SHARE = 0.85  # of a node's cores and memory: the rest is the node's own, and of what runs beside


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
