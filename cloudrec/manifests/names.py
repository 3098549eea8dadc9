"""The names and labels of a run's objects, and what Kubernetes and its operators allow them to be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload

MANAGER = "cloudrec"  # also the field manager's name
MANAGED_BY = "app.kubernetes.io/managed-by"
CLUSTER, OWNER, RUN, LAUNCH = "cloudrec/cluster", "cloudrec/owner", "cloudrec/run", "cloudrec/launch"
ROLE, TRAINER = "cloudrec/role", "trainer"
QUEUE = "kueue.x-k8s.io/queue-name"
RENDEZVOUS_PORT = 29400
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@+-]*")
_LONGEST = 63  # a DNS label, and a label's value
_HASH = "-xxxxx"  # what Kubernetes adds to the name of a Job's pod


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How one launcher names its pods.

    Attributes:
        launcher: its name.
        container: the container that trains, as the operator knows it.
        host: the name of a run's last pod in DNS, with RUN and LAST to be put in.
        longest: the most characters that the operator allows a run's name; 0 where the pods' names limit it.
        hashed: whether the longest name has a hash behind it.
    """

    launcher: str
    container: str
    host: str
    longest: int = 0
    hashed: bool = False


ENGINES: Mapping[str, Engine] = {
    "torchrun": Engine(launcher="torchrun", container="trainer", host="{run}-{index}"),
    "pytorchjob": Engine(launcher="pytorchjob", container="pytorch", host="{run}-worker-{index}"),
    "trainjob": Engine(launcher="trainjob", container="node", host="{run}-node-0-{index}", hashed=True),
    "rayjob": Engine(launcher="rayjob", container="trainer", host="{run}", longest=47),
}


def engine_of(launcher: str) -> Engine:
    """Return what is known of a launcher; UsageError where it is none of Kubernetes."""
    try:
        return ENGINES[launcher]
    except KeyError:
        raise UsageError(
            f"there is no launcher {launcher!r} for Kubernetes", remedy=f"use one of {', '.join(ENGINES)}"
        ) from None


def check(engine: Engine, workload: Workload, target: Target) -> None:
    """Refuse, with SpecError, what the API server or an operator would refuse, or take for something else."""
    _check_run(engine, workload)
    _check_counts(workload)
    check_labels(workload.cluster, workload.owner)
    check_image(workload.image)
    for what, name in (("namespace", target.namespace), ("service account", target.service_account)):
        if len(name) > _LONGEST or not _DNS_LABEL.fullmatch(name):
            raise SpecError(f"the {what} {name!r} is no name that Kubernetes knows")
    for what, name in (("queue", workload.queue), ("priority class", workload.priority_class)):
        if name and (len(name) > _LONGEST or not _DNS_LABEL.fullmatch(name)):
            raise SpecError(f"the {what} {name!r} is no name that Kubernetes knows")


def check_labels(cluster: str, owner: str) -> None:
    """Refuse a cluster's or an owner's name that cannot be a label; SpecError."""
    for what, name in (("cluster", cluster), ("owner", owner)):
        if len(name) > _LONGEST or not _LABEL_VALUE.fullmatch(name):
            raise SpecError(
                f"the {what}'s name {name!r} cannot be a label",
                remedy="use letters, digits and inner '-', '_' and '.', at most 63 of them",
            )


def check_image(image: str) -> None:
    """Refuse an image that is missing, or no reference to one; SpecError."""
    if not image:
        raise SpecError(
            "there is no image with the trainer",
            remedy="`cloudrec image push` makes one, or name one with --image",
        )
    if not _IMAGE.fullmatch(image):
        raise SpecError(
            f"the image {image!r} is no reference to an image", remedy="use REPOSITORY@sha256:..."
        )


def cluster_labels(cluster: str, owner: str) -> dict[str, str]:
    """Return the labels of everything of ours in a cluster."""
    return {MANAGED_BY: MANAGER, CLUSTER: cluster, OWNER: owner}


def trainers(run: str) -> dict[str, str]:
    """Return the labels of a run's pods that train, which none of its other pods has."""
    return {RUN: run, ROLE: TRAINER}


def run_labels(workload: Workload) -> dict[str, str]:
    """Return the labels of everything of one launch of a run."""
    return {
        **cluster_labels(workload.cluster, workload.owner),
        RUN: workload.run,
        LAUNCH: str(workload.launch),
    }


def _check_run(engine: Engine, workload: Workload) -> None:
    run = workload.run
    if not _DNS_LABEL.fullmatch(run):
        raise SpecError(
            f"the run's name {run!r} cannot be a Service's name",
            remedy="begin it with a letter, and use lower-case letters, digits and inner '-'",
        )
    longest = engine.host.format(run=run, index=workload.nodes - 1) + (_HASH if engine.hashed else "")
    allowed = min(_LONGEST - (len(longest) - len(run)), engine.longest or _LONGEST, _LONGEST - len("-probe"))
    if len(run) > allowed:
        raise SpecError(
            f"the run's name {run!r} has {len(run)} characters; with the launcher {engine.launcher} "
            f"and {workload.nodes} nodes {allowed} is the limit, since pods' names begin with it",
            remedy="choose a shorter one with --name",
        )


def _check_counts(workload: Workload) -> None:
    for name in ("nodes", "min_nodes", "processes", "launch"):
        if getattr(workload, name) < 1:
            raise SpecError(f"{name} is {getattr(workload, name)}; it must be at least 1")
    if workload.min_nodes > workload.nodes:
        raise SpecError(f"min_nodes is {workload.min_nodes}, and there are {workload.nodes} nodes")
