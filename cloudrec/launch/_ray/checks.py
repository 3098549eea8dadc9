"""What is looked at before a run is sent to a Ray cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError, SpecError
from cloudrec.launch._ray.client import Cluster, ray_version
from cloudrec.launch._ray.job import files_to_send, requirements_of
from cloudrec.launch._ray.settings import Head, RaySettings
from cloudrec.launch.outputs import flag_value
from cloudrec.launch.place import is_remote

if TYPE_CHECKING:
    from cloudrec.launch.runspec import RunSpec

_SET_HERE = ("output_dir", "config")


def check_spec(spec: RunSpec) -> None:
    """Refuse what no Ray cluster could run: flags that are ours, missing files, too much to send."""
    settings = RaySettings.of(spec)
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise SpecError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files go to its storage",
                remedy=f"leave --{flag} out",
            )
    requirements_of(settings)
    files_to_send(settings)


def check_head(head: Head) -> Cluster:
    """Connect; refuse a cluster of another Ray or another Python than here.

    Raises:
        MissingExtraError: Ray is not installed here.
        PreflightError: it cannot be reached, asks for another token, or is another version.
    """
    cluster = Cluster(head)
    theirs, python = cluster.versions()
    ours = ray_version()
    if _minor(theirs) != _minor(ours):
        raise PreflightError(
            f"the Ray cluster at {head.url} runs Ray {theirs}; here is {ours}",
            remedy=f"pip install 'ray[default]=={theirs}' here, or bring the cluster to {ours}",
        )
    here = platform.python_version()
    if python and _minor(python) != _minor(here):
        raise PreflightError(
            f"the Ray cluster at {head.url} runs Python {python}; here is {here}",
            remedy=f"use cloudrec from an environment with Python {'.'.join(python.split('.')[:2])}",
        )
    return cluster


def check_storage(spec: RunSpec, head: Head | None) -> None:
    """Refuse to leave results on a disk that other machines do not see."""
    named = RaySettings.of(spec).storage
    if named or head is None or head.is_here or is_remote(spec.storage):
        return
    raise PreflightError(
        f"the nodes of the Ray cluster at {head.url} may not see {spec.storage}, which is on this machine",
        remedy="name a place that all of them see: --set train.settings.storage=s3://BUCKET/PREFIX, "
        "or the path of a shared file system",
    )


def gpus_a_node(spec: RunSpec, cluster: Cluster) -> int:
    """Return how many GPUs each node is to have: one a process where the cluster has any."""
    asked = RaySettings.of(spec).gpus_per_node
    if asked is not None:
        return asked
    return spec.nproc_per_node if any(machine.gpus for machine in cluster.machines()) else 0


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
