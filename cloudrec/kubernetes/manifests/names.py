"""The names and labels of a run's objects, and the limits of Kubernetes and its operators for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload

MANAGER = "cloudrec"  # also the field manager's name
MANAGED_BY = "app.kubernetes.io/managed-by"
CLUSTER, OWNER, RUN, LAUNCH = "cloudrec/cluster", "cloudrec/owner", "cloudrec/run", "cloudrec/launch"
ROLE, TRAINER = "cloudrec/role", "trainer"
QUEUE = "kueue.x-k8s.io/queue-name"
# Annotations of a template of pods, with the label of a level of Kueue's Topology.
PREFERRED_LEVEL, REQUIRED_LEVEL = (
    f"kueue.x-k8s.io/podset-{how}-topology" for how in ("preferred", "required")
)
RENDEZVOUS_PORT = 29400
METRICS = "metrics"  # the name of the port at which a pod serves metrics
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@+-]*")
_LONGEST = 63  # a DNS label, and a label's value
_HASH = "-xxxxx"  # as long as the suffix that Kubernetes adds to the name of a Job's pod


@dataclass(frozen=True, kw_only=True)
class PodNaming:
    """The names of one launcher's pods.

    Attributes:
        launcher: its name.
        container: the name of the container that trains, which the operator prescribes.
        host: the DNS name of a pod, with {run} and {index}.
        longest: the operator's limit for the length of a run's name; 0 if only the pods' names limit it.
        hashed: whether a hash is added to the longest name.
    """

    launcher: str
    container: str
    host: str
    longest: int = 0
    hashed: bool = False


ENGINES: Mapping[str, PodNaming] = {
    "torchrun": PodNaming(launcher="torchrun", container="trainer", host="{run}-{index}"),
    "pytorchjob": PodNaming(launcher="pytorchjob", container="pytorch", host="{run}-worker-{index}"),
    "trainjob": PodNaming(launcher="trainjob", container="node", host="{run}-node-0-{index}", hashed=True),
    "jobset": PodNaming(launcher="jobset", container="trainer", host="{run}-node-0-{index}", hashed=True),
    "rayjob": PodNaming(launcher="rayjob", container="trainer", host="{run}", longest=47),
}


def engine_of(launcher: str) -> PodNaming:
    """Return the naming of a launcher; UsageError if it is none of Kubernetes."""
    try:
        return ENGINES[launcher]
    except KeyError:
        raise UsageError(
            f"there is no launcher {launcher!r} for Kubernetes", remedy=f"use one of {', '.join(ENGINES)}"
        ) from None


def check(engine: PodNaming, workload: Workload, target: ClusterTarget) -> None:
    """Raise SpecError for names and counts that the API server or an operator would refuse or misread."""
    _check_run(engine, workload)
    _check_counts(workload)
    check_labels(workload.cluster, workload.owner)
    check_image(workload.image)
    for what, name in (("namespace", target.namespace), ("service account", target.service_account)):
        if len(name) > _LONGEST or not _DNS_LABEL.fullmatch(name):
            raise SpecError(f"the {what} {name!r} is no valid name in Kubernetes")
    for what, name in (("queue", workload.queue), ("priority class", workload.priority_class)):
        if name and (len(name) > _LONGEST or not _DNS_LABEL.fullmatch(name)):
            raise SpecError(f"the {what} {name!r} is no valid name in Kubernetes")


def check_labels(cluster: str, owner: str) -> None:
    """Raise SpecError if the name of a cluster or an owner cannot be a label."""
    for what, name in (("cluster", cluster), ("owner", owner)):
        if len(name) > _LONGEST or not _LABEL_VALUE.fullmatch(name):
            raise SpecError(
                f"the {what}'s name {name!r} cannot be a label",
                remedy="use letters, digits and inner '-', '_' and '.', at most 63 of them",
            )


def check_image(image: str) -> None:
    """Raise SpecError if the image is missing, or is no image reference."""
    if not image:
        raise SpecError(
            "there is no image for the pods",
            remedy="leave --image out for a published one, or name one with the trainer",
        )
    if not _IMAGE.fullmatch(image):
        raise SpecError(f"the image {image!r} is no image reference", remedy="write REPOSITORY@sha256:...")


def cluster_labels(cluster: str, owner: str) -> dict[str, str]:
    """Return the labels of all objects that cloudrec creates in a cluster."""
    return {MANAGED_BY: MANAGER, CLUSTER: cluster, OWNER: owner}


def trainers(run: str) -> dict[str, str]:
    """Return the labels of a run's pods that train; its other pods do not have both."""
    return {RUN: run, ROLE: TRAINER}


def run_labels(workload: Workload) -> dict[str, str]:
    """Return the labels of all objects of one launch of a run."""
    return {
        **cluster_labels(workload.cluster, workload.owner),
        RUN: workload.run,
        LAUNCH: str(workload.launch),
    }


def _check_run(engine: PodNaming, workload: Workload) -> None:
    run = workload.run
    if not _DNS_LABEL.fullmatch(run):
        raise SpecError(
            f"the run's name {run!r} cannot be a Service's name",
            remedy="begin it with a letter, and use lower-case letters, digits and inner '-'",
        )
    longest = engine.host.format(run=run, index=workload.nodes - 1) + (_HASH if engine.hashed else "")
    # The probe's objects have the run's name with a suffix, which must fit too.
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
