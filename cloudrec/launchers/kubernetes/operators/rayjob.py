"""The launcher `rayjob`: KubeRay, which makes a Ray cluster for the run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launchers.kubernetes.engine import JobOperator, Phase
from cloudrec.launchers.kubernetes.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERROR = "error: "
_LOGS = ", last available logs"  # Ray's message continues with the driver's log from here
_DEPLOYMENT = {"Complete": "succeeded", "Failed": "failed", "Suspended": "suspended"}


def _phase(job: Mapping[str, Any]) -> Phase:
    """Return the phase of a RayJob."""
    status = job.get("status") or {}
    # The state of the driver is more exact than that of the deployment, but before the deployment ends,
    # KubeRay may still submit the job again.
    ended = {"SUCCEEDED": "succeeded", "FAILED": "failed"}
    deployment = str(status.get("jobDeploymentStatus", ""))
    state = ended.get(str(status.get("jobStatus", ""))) if deployment in ("Complete", "Failed") else None
    message = str(status.get("message", ""))
    error = _last_error(message)
    return Phase(
        state=state or _DEPLOYMENT.get(deployment, "active"),
        reason="" if error else str(status.get("reason", "")),
        message=error or message.partition(_LOGS)[0],
    )


def _last_error(message: str) -> str:
    """Return the last error in the lines of the driver's log that a message quotes; empty if it has none."""
    errors = [line for line in message.splitlines() if line.startswith(_ERROR)]
    return errors[-1].removeprefix(_ERROR) if errors else ""


LAUNCHER = KubeLauncher(
    engine=JobOperator(
        name="rayjob", kind="ray.io/v1/RayJob", phase=_phase, addon="kuberay", extra="ray", prints=False
    )
)
