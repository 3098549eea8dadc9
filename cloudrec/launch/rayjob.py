"""The launcher `rayjob`: KubeRay, which makes a Ray cluster for the run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launch._kube.engine import Engine, Phase
from cloudrec.launch._kube.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERROR = "error: "
_LOGS = ", last available logs"  # which Ray has after its own words
_DEPLOYMENT = {"Complete": "succeeded", "Failed": "failed", "Suspended": "suspended"}


def _phase(job: Mapping[str, Any]) -> Phase:
    """Read a RayJob: the driver's own end counts before that of the Ray cluster."""
    status = job.get("status") or {}
    told = {"SUCCEEDED": "succeeded", "FAILED": "failed"}
    deployment = str(status.get("jobDeploymentStatus", ""))
    state = told.get(str(status.get("jobStatus", ""))) if deployment in ("Complete", "Failed") else None
    message, words = str(status.get("message", "")), _last_words(str(status.get("message", "")))
    return Phase(
        state=state or _DEPLOYMENT.get(deployment, "active"),
        reason="" if words else str(status.get("reason", "")),
        message=words or message.partition(_LOGS)[0],
    )


def _last_words(message: str) -> str:
    """Return why the driver has ended, out of its last lines; empty where it does not say."""
    told = [line for line in message.splitlines() if line.startswith(_ERROR)]
    return told[-1].removeprefix(_ERROR) if told else ""


LAUNCHER = KubeLauncher(
    engine=Engine(name="rayjob", kind="ray.io/v1/RayJob", phase=_phase, addon="kuberay", prints=False)
)
