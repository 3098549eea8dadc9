"""A small pod that looks, from inside the cluster, whether a run can read its data and keep its results."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.causes import pod_cause
from cloudrec.cluster.exits import split_remedy
from cloudrec.errors import CloudrecError, PreflightError
from cloudrec.launch._kube.judge import exit_code
from cloudrec.manifests import probe_objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

_POLL_S = 0.5
_LIMIT_S = 600.0  # an image of 10 GB is pulled in some minutes
_PATIENCE_S = {"ImagePullBackOff": 2.0, "Unschedulable": 45.0}  # a first refusal may be a passing one
_SHARED = ("Namespace", "ServiceAccount")


def probe(kube: Kube, workload: Workload, target: Target, profile: Profile) -> None:
    """Run the probe to its end and leave nothing of it.

    Raises:
        PreflightError: its pod cannot be started, or says what it cannot read or write.
    """
    objects = probe_objects(workload, target, profile)
    (job,) = (each for each in objects if each["kind"] == "Job")
    try:
        _remove(kube, objects)  # what a process that was killed has left
        for manifest in objects:
            kube.apply(manifest)
        _wait(kube, job)
    finally:
        with suppress(CloudrecError):  # it goes by itself some time after its end
            _remove(kube, objects)


def _wait(kube: Kube, job: Mapping[str, Any]) -> None:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    begun, troubled = time.monotonic(), 0.0
    while True:
        pods = kube.list("Pod", namespace=namespace, labels={"batch.kubernetes.io/job-name": name})
        for pod in pods:
            code = exit_code(pod)
            if code == 0:
                return
            if code is not None:
                raise _refusal(kube, pod, namespace)
        now = time.monotonic()
        cause = next((found for pod in pods if (found := _trouble(kube, pod, namespace))), None)
        troubled = (troubled or now) if cause else 0.0
        if cause and now - troubled >= _PATIENCE_S.get(cause.kind, 20.0):
            raise PreflightError(f"the run's pods cannot be started: {cause.text}", remedy=cause.remedy)
        if now - begun > _LIMIT_S:
            raise PreflightError(
                f"the pod {name} that looks at the run's data has not ended in {_LIMIT_S:g} s",
                remedy="`kubectl describe` tells more; train.settings.probe=false launches without it",
            )
        time.sleep(_POLL_S)


def _trouble(kube: Kube, pod: Mapping[str, Any], namespace: str) -> Any:  # noqa: ANN401 - a Cause or None
    status = pod.get("status") or {}
    if status.get("phase") != "Pending":
        return None
    fields = {"involvedObject.name": pod["metadata"]["name"], "type": "Warning"}
    events = kube.list("Event", namespace=namespace, fields=fields)
    scheduled = any(each.get("type") == "PodScheduled" for each in status.get("conditions") or [])
    return pod_cause(pod, events=events, nodes=kube.list("Node") if scheduled else ())


def _refusal(kube: Kube, pod: Mapping[str, Any], namespace: str) -> PreflightError:
    """Return what the probe says, or the end of its log where it says nothing."""
    cause = pod_cause(pod)
    said = ""
    for each in (pod.get("status") or {}).get("containerStatuses") or []:
        said = str(((each.get("state") or {}).get("terminated") or {}).get("message") or "").strip()
    if not said:
        with suppress(CloudrecError):
            name = pod["metadata"]["name"]
            said = " ".join(kube.logs(name, namespace=namespace, tail=3)).strip()
    text, remedy = split_remedy(said)
    return PreflightError(
        f"seen from inside the cluster, the run cannot work: {text or (cause and cause.text)}",
        remedy=remedy or (cause.remedy if cause else None),
    )


def _remove(kube: Kube, objects: Sequence[Mapping[str, Any]]) -> None:
    for manifest in reversed(objects):
        if manifest["kind"] not in _SHARED:
            metadata = manifest["metadata"]
            kind = f"{manifest['apiVersion']}/{manifest['kind']}"
            kube.delete(kind, metadata["name"], namespace=metadata["namespace"], grace_s=0)
