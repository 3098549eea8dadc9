"""The commands that a run's pods start: the agent, torchrun below it, and a rank's trainer below that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml

from cloudrec.manifests.environment import GPUS, WORK, literal
from cloudrec.manifests.names import RENDEZVOUS_PORT

if TYPE_CHECKING:
    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload

CONFIG = "/etc/cloudrec"
POD = ("python", "-m", "cloudrec.pod")
AGENT = (*POD, "agent")
DRIVER = (*POD, "ray")
_LAST_WORDS_S = 5  # of the grace, for what the agent keeps once the trainer has ended


def agent_arguments(workload: Workload, target: Target, *, rendezvous: str, address: str) -> tuple[str, ...]:
    """Return the agent's arguments, in which Kubernetes replaces $(NAME) of ours alone.

    Args:
        workload: the run.
        target: the cluster.
        rendezvous: the host where ranks meet.
        address: under which name or address others reach this pod; ranks are in its order.
    """
    meeting = ("--rdzv-endpoint", f"{rendezvous}:{RENDEZVOUS_PORT}", "--local-addr", address)
    program = (literal(each) for each in _program(workload, target))
    return ("--", "torchrun", *_elastic(workload), *meeting, *program)


def launch_file(workload: Workload, target: Target) -> str:
    """Return what a driver of agents must know: how many there are to be, and what each one runs."""
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
    """Return what a probe is to look at: the dataset, where one is named, and the place for results."""
    dataset = _dataset(workload)
    return (
        *(("--dataset", literal(dataset)) if dataset else ()),
        *(("--results", literal(workload.results)) if workload.results else ()),
    )


def _dataset(workload: Workload) -> str:
    """Return the dataset that the trainer would take: a flag's, the last one's, or else the file's."""
    named = ""
    document = yaml.safe_load(workload.config)
    if isinstance(document, dict):
        named = str(document.get("dataset_path") or document.get("dataset-path") or "")
    for position, word in enumerate(workload.flags):
        flag, equals, value = word.partition("=")
        if flag.replace("-", "_") == "__dataset_path":
            named = value if equals else "".join(workload.flags[position + 1 : position + 2])
    return named


def _elastic(workload: Workload) -> tuple[str, ...]:
    """Return what torchrun is told of a run, but for where its nodes meet."""
    fewest, most = workload.min_nodes, workload.nodes
    return (
        *("--nnodes", str(most) if fewest == most else f"{fewest}:{most}"),
        *("--nproc-per-node", str(workload.processes)),
        *("--max-restarts", str(workload.max_restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-id", f"{workload.run}-{workload.launch}"),
    )


def _program(workload: Workload, target: Target) -> tuple[str, ...]:
    """Return what torchrun starts for each rank; what the user says comes last, and wins."""
    return (
        *("--no-python", *POD, "rank", "--", *workload.command),
        *("--config", f"{CONFIG}/trainer.yaml", "--output_dir", f"{WORK}/run"),
        *(("--checkpoint_dir", f"{workload.results}/checkpoints") if workload.results else ()),
        *("--stop_grace_seconds", str(max(1, workload.grace_s - _LAST_WORDS_S))),
        *(("--preemption_notices", target.notices) if target.notices else ()),
        *workload.flags,
    )
