"""The commands that a run's pods start: the agent, torchrun below it, and a rank's trainer below that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cloudrec.kubernetes.manifests.environment import GPUS, WORK, literal
from cloudrec.kubernetes.manifests.names import RENDEZVOUS_PORT
from cloudrec_contract.layout import node_range

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload

CONFIG = "/etc/cloudrec"
POD = ("python", "-P", "-m", "cloudrec.agent")
AGENT = (*POD, "agent")
DRIVER = (*POD, "ray")
_NEAR_GB = "8"
_LAST_COPY_S = 5  # of the grace, for the agent's last uploads after the trainer has ended


def agent_arguments(
    workload: Workload, target: ClusterTarget, *, rendezvous: str, address: str
) -> tuple[str, ...]:
    """Return the agent's arguments. Kubernetes replaces $(NAME) in cloudrec's arguments, not in the user's.

    Args:
        workload: the run.
        target: the cluster.
        rendezvous: the host of the rendezvous.
        address: the name or address by which others reach this pod; torchrun orders the ranks by it.
    """
    meeting = ("--rdzv-endpoint", f"{rendezvous}:{RENDEZVOUS_PORT}", "--local-addr", address)
    program = (literal(each) for each in _program(workload, target))
    return ("--", "torchrun", *_elastic(workload), *meeting, *program)


def launch_file(workload: Workload, target: ClusterTarget) -> str:
    """Return the content of launch.json for a driver of agents: their number and their command."""
    return json.dumps(
        {
            "nodes": workload.nodes,
            "min_nodes": workload.min_nodes,
            "max_restarts": workload.max_restarts,
            "gpus": int(target.resources.get(GPUS, "0")),
            "port": RENDEZVOUS_PORT,
            "agent": [*AGENT, "--", "torchrun", *_elastic(workload)],
            "program": _program(workload, target),
        },
        indent=2,
    )


def probe_arguments(workload: Workload) -> tuple[str, ...]:
    """Return the arguments of a probe: the dataset and the folder for results, if the run has them."""
    return (
        *(("--dataset", literal(workload.dataset)) if workload.dataset else ()),
        *(("--results", literal(workload.results)) if workload.results else ()),
    )


def _elastic(workload: Workload) -> tuple[str, ...]:
    """Return torchrun's flags for a run, without those of the rendezvous."""
    return (
        *("--nnodes", node_range(workload.min_nodes, workload.nodes)),
        *("--nproc-per-node", str(workload.processes)),
        *("--max-restarts", str(workload.max_restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-id", f"{workload.run}-{workload.launch}"),
    )


def _program(workload: Workload, target: ClusterTarget) -> tuple[str, ...]:
    """Return the command that torchrun starts for each rank; the user's flags come last, and override."""
    grace_s = str(max(1, workload.grace_s - _LAST_COPY_S))
    return (
        *("--no-python", *POD, "rank", "--", *workload.command),
        *("--config", f"{CONFIG}/trainer.yaml", "--output_dir", f"{WORK}/run"),
        *(("--checkpoint_dir", workload.checkpoints) if workload.checkpoints else ()),
        *("--stop_grace_seconds", grace_s),
        # On a disk of unknown size the pod may use what it requests: a part of that is for its own files.
        *(("--checkpoint_near_gb", _NEAR_GB) if workload.disk_gib and not target.disk_gb else ()),
        *(("--preemption_notices", target.notices) if target.notices else ()),
        # The kubelet ends the pods with the notice, so that both leave the same time: the node pool's.
        *(("--preemption_notice_seconds", grace_s) if target.notices and target.is_preempted else ()),
        *workload.flags,
    )
