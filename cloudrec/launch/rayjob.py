"""The launcher `rayjob`: KubeRay, which makes a Ray cluster for the run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launch._kube.engine import Engine, Phase
from cloudrec.launch._kube.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEPLOYMENT = {"Complete": "succeeded", "Failed": "failed", "Suspended": "suspended"}


def _phase(job: Mapping[str, Any]) -> Phase:
    """Read a RayJob: the driver's own end counts before that of the Ray cluster."""
    status = job.get("status") or {}
    told = {"SUCCEEDED": "succeeded", "FAILED": "failed"}
    deployment = str(status.get("jobDeploymentStatus", ""))
    state = told.get(str(status.get("jobStatus", ""))) if deployment in ("Complete", "Failed") else None
    return Phase(
        state=state or _DEPLOYMENT.get(deployment, "active"),
        reason=str(status.get("reason", "")),
        message=str(status.get("message", "")),
    )


LAUNCHER = KubeLauncher(
    engine=Engine(name="rayjob", kind="ray.io/v1/RayJob", phase=_phase, addon="kuberay", prints=False)
)
