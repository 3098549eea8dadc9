"""The pods of a Job: made from its template, distinguished by their index."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_over, is_true, phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.storage.mirror import Object

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58


def is_indexed(job: Mapping[str, Any]) -> bool:
    """Return whether each pod is for one index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def limits_each_index(job: Mapping[str, Any]) -> bool:
    """Return whether failures count, and delay replacements, for each index separately."""
    return "backoffLimitPerIndex" in job["spec"]


def index_of(pod: Mapping[str, Any]) -> int:
    """Return the index that a pod is for, -1 without one."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def is_counted(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod's end is in the Job's numbers: then its finalizer is gone."""
    return FINALIZER not in (pod["metadata"].get("finalizers") or ())


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether it runs, or will run."""
    return not is_over(pod) and not is_ending(pod)


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Return whether it is being deleted and has not ended."""
    return is_ending(pod) and not is_over(pod)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether it runs and is ready."""
    return is_active(pod) and is_true(pod, "Ready")


def replaces_failed_only(job: Mapping[str, Any]) -> bool:
    """Return whether a pod that is being deleted is replaced only once it has ended."""
    # JobSpec in the API model: with a podFailurePolicy, Failed is the only allowed value.
    default = "Failed" if job["spec"].get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(job["spec"].get("podReplacementPolicy", default) == "Failed")


def has_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a pod counts as failed by now."""
    if phase(pod) == "Failed":
        return True
    return is_terminating(pod) and not replaces_failed_only(job)


def wanted_indexes(job: Mapping[str, Any], pods: Sequence[Object], done: set[int], count: int) -> list[int]:
    """Return the lowest indexes that are not done and have no pod, at most `count`."""
    # A pod that is being deleted still has its index, if the Job waits for its end.
    taken = {
        index_of(pod) for pod in pods if is_active(pod) or (is_terminating(pod) and replaces_failed_only(job))
    }
    completions = int(job["spec"].get("completions") or 1)
    free = (index for index in range(completions) if index not in done and index not in taken)
    return [index for index, _ in zip(free, range(count), strict=False)]


def new_pod(
    job: Mapping[str, Any], index: int | None, failures: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return a pod of the Job's template.

    Args:
        job: the Job.
        index: the index that the pod is for; None in a Job without indexes.
        failures: the counts of the index's earlier failures, by annotation.
    """
    template = copied(job["spec"]["template"])
    metadata = template.setdefault("metadata", {}) or {}
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    own = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    labels = {**(metadata.get("labels") or {}), **own}
    annotations = dict(metadata.get("annotations") or {})
    annotations |= {name: str(count) for name, count in (failures or {}).items()}
    prefix = f"{name}-"
    spec = template["spec"]
    if index is not None:
        prefix = f"{name}-{index}-"
        labels[INDEX] = annotations[INDEX] = str(index)
        spec.setdefault("hostname", f"{name}-{index}"[:63])
        _add_index(spec)
    end = "".join(secrets.choice(_LETTERS) for _ in range(5))
    return {
        "metadata": {
            "name": prefix[:_LONGEST_PREFIX] + end,
            "generateName": prefix,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            # Kept until its end is counted, so that no failure is lost if the pod is deleted before.
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }


def _add_index(spec: dict[str, Any]) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        variables = container.setdefault("env", []) or []
        if all(each["name"] != "JOB_COMPLETION_INDEX" for each in variables):
            container["env"] = [*variables, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
