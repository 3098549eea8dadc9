"""Turns a run's spec into a `Workload`, from which its manifests are rendered."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import yaml

from cloudrec.errors import SpecError
from cloudrec.kubernetes.manifests.workload import Workload
from cloudrec.kubernetes.wishes import DEADLINE, FEWEST, MAX_PRICE, NODES, TURNS, WORK
from cloudrec.launchers.base.runspec import is_own_trainer
from cloudrec.launchers.kubernetes.context import REPLACE, REPORT, Settings, target_of
from cloudrec.launchers.kubernetes.secrets import references
from cloudrec.providers.base.storage.tiers import GIB, MARGIN, OWN_GIB
from cloudrec.transport import profile_of
from cloudrec_contract.settings import flag_value

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.transport import Profile

_POD_PYTHON = "python"  # the image's interpreter; this machine's path does not exist there
_SET_HERE = ("output_dir", "config")
# The share of a node's cores and memory that a pod requests. The rest is for the system and for DaemonSets;
# beside a pod without GPUs, other pods use the node as well.
_SHARE, _SHARE_WITHOUT_GPUS = 0.85, 0.5


def profile_for(target: ClusterTarget) -> Profile:
    """Return the profile of the fabric between a cluster's GPU nodes."""
    return profile_of(target.fabric, target.instance_type)


def grace_of(spec: RunSpec, target: ClusterTarget) -> int:
    """Return a pod's grace period in seconds; on preemptible machines at most the length of their notice.

    The kubelet cuts a longer terminationGracePeriodSeconds short when the machine is preempted. A pod that
    relied on it would be killed before it has saved its last steps.
    """
    wanted = math.ceil(spec.stop_grace_s)
    return min(wanted, target.notice_s) if target.is_preempted else wanted


def config_text(spec: RunSpec) -> str:
    """Return the text of trainer.yaml as the pods read it."""
    return yaml.safe_dump(dict(spec.trainer_config), sort_keys=False)


def workload_of(spec: RunSpec, *, launch: int, owner: str) -> Workload:
    """Return the workload of one launch of a run."""
    settings, target = Settings.of(spec.settings), target_of(spec)
    share = _SHARE if target.resources else _SHARE_WITHOUT_GPUS
    program, *words = spec.trainer_command
    command = (_POD_PYTHON if program == sys.executable else program, *words)
    return Workload(
        metrics_port=spec.metrics_port,
        run=spec.name,
        cluster=spec.cluster,
        owner=owner,
        launch=launch,
        image=spec.image,
        setup=spec.setup,
        nodes=spec.nodes,
        min_nodes=spec.fewest_nodes,
        processes=spec.nproc_per_node,
        command=command,
        flags=spec.trainer_flags,
        config=config_text(spec),
        environment=dict(spec.environment),
        secrets=references(spec.secrets),
        results=spec.results,
        checkpoints=spec.checkpoints,
        dataset=spec.trainer.dataset_path,
        max_restarts=spec.max_restarts,
        grace_s=grace_of(spec, target),
        cpus=settings.cpus or int(target.cpus * share),
        memory_gib=settings.memory_gib or int(target.memory_gib * share),
        disk_gib=disk_gib(spec.staged_gb, target),
        allow_tcp=spec.allow_tcp,
        priority_class=settings.priority_class,
        queue=settings.queue,
        start_timeout_s=settings.start_timeout_s if spec.nodes > 1 and spec.results else 0,
        dead_node=_dead_node(spec, settings),
        wishes=_wishes(spec, target, settings),
    )


def _wishes(spec: RunSpec, target: ClusterTarget, settings: Settings) -> dict[str, str]:
    """Return what the run asks of the keeper; nothing on a cluster without managed nodes."""
    if not target.is_managed:
        return {}
    asked = {
        DEADLINE: f"{settings.deadline_s:.0f}" if settings.deadline else "",
        WORK: f"{settings.work_s:.0f}" if settings.work else "",
        MAX_PRICE: f"{settings.max_price:g}" if settings.max_price else "",
        TURNS: "shared" if spec.elsewhere else "",
        FEWEST: str(spec.fewest_nodes) if spec.elsewhere and spec.fewest_nodes < spec.nodes else "",
    }
    return {NODES: str(spec.nodes), **{label: value for label, value in asked.items() if value}}


def disk_gib(staged_gb: float, target: ClusterTarget) -> int:
    """Return the ephemeral storage that a pod requests, in GiB: for its own files, and for a dataset.

    Without a dataset of known size, pods on nodes of an unknown disk request none: a small disk is enough.
    """
    staged = 0.0 if target.local_path else staged_gb
    if not target.disk_gb and not staged:
        return 0
    return OWN_GIB + math.ceil(staged * MARGIN / GIB)


def _dead_node(spec: RunSpec, settings: Settings) -> str:
    """Return what becomes of a pod whose node is dead; see `Settings.dead_node`."""
    is_fenced = bool(spec.storage) and is_own_trainer(spec.trainer_command)
    return settings.dead_node or (REPLACE if is_fenced else REPORT)


def refuse_flags(spec: RunSpec) -> None:
    """Raise SpecError if the user sets a trainer flag that cloudrec sets."""
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise SpecError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files are in the cluster's storage",
                remedy=f"leave --{flag} out",
            )
