"""The pods of a Job: made of its template, told apart by their index."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.mirror import is_ending, is_over, is_true, phase
from cloudrec.sandbox.kubernetes.table import copied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.sandbox.kubernetes.mirror import Object

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58


def is_indexed(job: Mapping[str, Any]) -> bool:
    """Whether each pod stands for one index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Mapping[str, Any]) -> int:
    """The index that a pod stands for, -1 without one."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def is_counted(pod: Mapping[str, Any]) -> bool:
    """Whether how it ended is in the Job's numbers."""
    return FINALIZER not in (pod["metadata"].get("finalizers") or ())


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether it works, or is to."""
    return not is_over(pod) and not is_ending(pod)


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Whether it is on its way out."""
    return is_ending(pod) and not is_over(pod)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether it works."""
    return is_active(pod) and is_true(pod, "Ready")


def replaces_failed_only(job: Mapping[str, Any]) -> bool:
    """Whether a pod on its way out is replaced only once it has ended."""
    default = "Failed" if job["spec"].get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(job["spec"].get("podReplacementPolicy", default) == "Failed")


def has_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a pod counts as failed by now."""
    if phase(pod) == "Failed":
        return True
    return is_terminating(pod) and not replaces_failed_only(job)


def wanted_indexes(
    job: Mapping[str, Any], pods: Sequence[Object], completed: set[int], count: int
) -> list[int]:
    """The lowest indexes that have neither succeeded nor a pod, at most `count`."""
    taken = {
        index_of(pod) for pod in pods if is_active(pod) or (is_terminating(pod) and replaces_failed_only(job))
    }
    completions = int(job["spec"].get("completions") or 1)
    free = (index for index in range(completions) if index not in completed and index not in taken)
    return [index for index, _ in zip(free, range(count), strict=False)]


def new_pod(job: Mapping[str, Any], index: int | None) -> dict[str, Any]:
    """A pod of the Job's template, for an index where it is told."""
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
