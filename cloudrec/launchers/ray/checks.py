"""Checks before a run is submitted to a Ray cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError, SpecError
from cloudrec.launchers.base.results_store import is_remote
from cloudrec.launchers.ray.client import Cluster, ray_version
from cloudrec.launchers.ray.job import files_to_send, requirements_of
from cloudrec.launchers.ray.settings import Head, RaySettings
from cloudrec_contract.settings import flag_value

if TYPE_CHECKING:
    from cloudrec.launchers.base.runspec import RunSpec

_SET_HERE = ("output_dir", "config")


def check_spec(spec: RunSpec) -> None:
    """Check the flags, and the size and existence of the files to send; SpecError or PreflightError."""
    settings = RaySettings.of(spec)
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise SpecError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files are in its storage",
                remedy=f"leave --{flag} out",
            )
    requirements_of(settings)
    files_to_send(settings)


def refuse_secrets(spec: RunSpec, head: Head | None) -> None:
    """Raise SpecError if a run in a running Ray cluster has secrets: its users could read the values."""
    if head is not None and spec.secrets:
        raise SpecError(
            f"the secret {next(iter(spec.secrets))} is not sent to the Ray cluster at {head.url}",
            remedy="set the variable in the environment of its nodes, and leave --secret out",
        )


def check_head(head: Head) -> Cluster:
    """Return the connection to a cluster whose versions of Ray and Python match this machine's.

    Raises:
        MissingExtraError: Ray is not installed on this machine.
        PreflightError: the cluster cannot be reached, refuses the token, or has another version.
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
    """Raise PreflightError if the results would be on a disk that the cluster's nodes may not see."""
    named = RaySettings.of(spec).storage
    if named or head is None or head.is_here or is_remote(spec.storage):
        return
    raise PreflightError(
        f"the nodes of the Ray cluster at {head.url} may not see {spec.storage}, which is on this machine",
        remedy="name a place that all of them see: --set train.settings.storage=s3://BUCKET/PREFIX, "
        "or the path of a shared file system",
    )


def gpus_a_node(spec: RunSpec, cluster: Cluster) -> int:
    """Return the GPUs to request for each node: the setting, else one a process if the cluster has any."""
    requested = RaySettings.of(spec).gpus_per_node
    if requested is not None:
        return requested
    return spec.nproc_per_node if any(machine.gpus for machine in cluster.machines()) else 0


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
