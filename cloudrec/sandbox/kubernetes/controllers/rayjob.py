"""RayJobs of KubeRay: a cluster of pods and a job in it.

Its pods run Ray itself, so a RayJob goes as far as there is a Ray: where this interpreter has none it fails,
and says so.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.kubernetes.controllers.operated import OperatedController

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.mirror import Object

_ENDS = ("Complete", "Failed")


class RayJobController(OperatedController):
    """Brings RayJobs to their end."""

    resource: ClassVar[str] = "rayjobs"
    kind: ClassVar[str] = "RayJob"
    source: ClassVar[str] = "rayjob-controller"
    operator: ClassVar[str] = "rayjob"

    def operate(self, obj: Object) -> None:
        """One sync."""
        status = obj.get("status") or {}
        if status.get("jobDeploymentStatus") in _ENDS:
            return
        now = self.cluster.timestamp()
        known: dict[str, Any] = {"startTime": status.get("startTime") or now}
        if obj["spec"].get("suspend"):
            known |= {"jobDeploymentStatus": "Suspended", "jobStatus": ""}
        else:
            known |= self._failed(now)
            self.tell(obj, "FailedToCreateRayCluster", known["message"], warning=True)
        self.cluster.patch_status(self.resource, obj, known)

    @staticmethod
    def _failed(now: str) -> dict[str, Any]:
        has_ray = find_spec("ray") is not None
        why = (
            "the sandbox's pods share this machine's network, on which several Ray nodes cannot be told apart"
            if has_ray
            else "ray is not installed where the sandbox runs"
        )
        return {
            "jobDeploymentStatus": "Failed",
            "jobStatus": "FAILED",
            "reason": "SubmissionFailed",
            "message": f"the Ray cluster did not come up: {why}",
            "endTime": now,
        }
