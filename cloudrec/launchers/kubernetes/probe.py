"""A small pod that checks, inside the cluster, whether a run can read its data and write its results."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, PreflightError
from cloudrec.kubernetes.health.causes import is_disrupted, pod_cause
from cloudrec.kubernetes.health.containers import split_remedy
from cloudrec.kubernetes.manifests import probe_objects
from cloudrec.launchers.kubernetes.run_state import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

_POLL_S = 0.5
_LIMIT_S = 600.0  # an image of 10 GB is pulled in some minutes
# A cause counts only after these seconds: an image may be pulled at the next try, a node may join.
_PATIENCE_S = {"ImagePullBackOff": 2.0, "Unschedulable": 45.0}


def probe(kube: Kube, workload: Workload, target: ClusterTarget, profile: Profile) -> None:
    """Run the probe to its end and remove its objects.

    Raises:
        PreflightError: its pod cannot be started, or cannot read or write a file; the message names it.
    """
    objects = probe_objects(workload, target, profile)
    (job,) = (each for each in objects if each["kind"] == "Job")
    try:
        _remove(kube, objects)  # the probe of a process that was killed
        for manifest in objects:
            kube.apply(manifest)
        _wait(kube, job)
    finally:
        with suppress(CloudrecError):  # the Job has a time to live, after which the cluster deletes it
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
            # The pod of a machine that was taken away is replaced: the other one checks.
            if code is not None and not is_disrupted(pod):
                raise _refusal(kube, pod, namespace)
        now = time.monotonic()
        cause = next((found for pod in pods if (found := _trouble(kube, pod, namespace))), None)
        troubled = (troubled or now) if cause else 0.0
        if cause and now - troubled >= _PATIENCE_S.get(cause.kind, 20.0):
            raise PreflightError(f"the run's pods cannot be started: {cause.text}", remedy=cause.remedy)
        if now - begun > _LIMIT_S:
            raise PreflightError(
                f"the pod {name} that checks the run's data has not ended in {_LIMIT_S:g} s",
                remedy="`kubectl describe` shows more; train.settings.probe=false launches without it",
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
    """Return the error for a failed probe: its termination message, else the end of its log."""
    cause = pod_cause(pod)
    message = ""
    for each in (pod.get("status") or {}).get("containerStatuses") or []:
        message = str(((each.get("state") or {}).get("terminated") or {}).get("message") or "").strip()
    if not message:
        with suppress(CloudrecError):
            name = pod["metadata"]["name"]
            message = " ".join(kube.logs(name, namespace=namespace, tail=3)).strip()
    text, remedy = split_remedy(message)
    return PreflightError(
        f"seen from inside the cluster, the run cannot work: {text or (cause and cause.text)}",
        remedy=remedy or (cause.remedy if cause else None),
    )


def _remove(kube: Kube, objects: Sequence[Mapping[str, Any]]) -> None:
    for manifest in reversed(objects):
        metadata = manifest["metadata"]
        kind = f"{manifest['apiVersion']}/{manifest['kind']}"
        kube.delete(kind, metadata["name"], namespace=metadata["namespace"], grace_s=0)
