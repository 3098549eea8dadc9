"""Requests for resizes of pods, statuses of Jobs and OpenAPI documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.contract.kubernetes_recorded.steps import (
    BATCH,
    CORE,
    Step,
    apply,
    get,
    job,
    obj,
    patch,
    pod,
    post,
    put,
    step,
)

PODS, JOBS = f"{CORE}/pods", f"{BATCH}/jobs"
_SIZED, _SMALL, _COUNTED = f"{PODS}/sized/resize", f"{PODS}/small/resize", f"{JOBS}/counted/status"
_MAIN = {
    "resources": {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "64Mi"},
    }
}


def _init(name: str, **rest: Any) -> dict[str, Any]:
    resources = {name: {"cpu": "50m", "memory": "32Mi"} for name in ("requests", "limits")}
    return {"name": name, "image": "registry.example/a:1", "resources": resources, **rest}


def _sized(**rest: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **rest}]}}


def _resources(**rest: Any) -> dict[str, Any]:
    return _sized(resources=rest)


def resizes() -> list[Step]:
    """Resizes of pods."""
    shown = ["spec.containers.0.resources", "metadata.generation", "status.qosClass"]
    inits = [_init("first"), _init("side", restartPolicy="Always")]

    def change(body: Any, *, show: Sequence[str] = ()) -> Step:
        return patch("strategic", _SIZED, body, show=["metadata.generation", *show])

    def init(name: str) -> dict[str, Any]:
        more = {"requests": {"cpu": "60m"}, "limits": {"cpu": "60m"}}
        return {"spec": {"initContainers": [{"name": name, "resources": more}]}}

    whole = pod("sized", one=_MAIN, initContainers=inits)
    larger = {"requests": {"cpu": "120m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
    container = {**whole["spec"]["containers"][0], "resources": larger}
    return [
        post(PODS, whole, show=shown),
        post(PODS, pod("small"), show=["status.qosClass"]),
        get(_SIZED, show=["kind", *shown]),
        change(_resources(limits={"cpu": "300m"}), show=shown),
        change(_resources(requests={"cpu": "150m", "memory": "32Mi"}), show=shown),
        change(_resources(requests={"cpu": "500m"})),
        change(_resources(requests={"memory": None})),
        change(_resources(limits={"memory": None})),
        change(_resources(limits={"ephemeral-storage": "1Gi"})),
        change(_resources(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"})),
        change(_resources(requests={"cpu": "-1"})),
        change(_resources(requests={"cpu": "many"})),
        change(_sized(image="registry.example/b:1"), show=["spec.containers.0.image"]),
        change(_sized(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])),
        change({"metadata": {"labels": {"new": "label"}}}, show=["metadata.labels"]),
        change({"spec": {"terminationGracePeriodSeconds": 1}}, show=["spec.terminationGracePeriodSeconds"]),
        change(init("first")),
        change(init("side"), show=["spec.initContainers.1.resources"]),
        change({"spec": {"containers": [_init("other")]}}),
        patch("merge", _SIZED, {"spec": {"containers": [_init("other")]}}),
        patch("merge", _SIZED, {"spec": {"containers": []}}),
        patch("merge", _SIZED, {"spec": {"containers": [container]}}, show=shown),
        patch(
            "json",
            _SIZED,
            [{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "350m"}],
            show=shown,
        ),
        put(_SIZED, whole, show=shown),
        apply(_SIZED, {**obj("v1", "Pod", "sized"), **_resources(limits={"cpu": "250m"})}, force="true"),
        patch("strategic", _SMALL, _resources(requests={"memory": "40Mi"})),
        patch("strategic", _SMALL, {"spec": {}}, show=["metadata.generation"]),
        patch("strategic", f"{PODS}/absent/resize", {"spec": {}}),
        post(_SIZED, whole),
        step("DELETE", _SIZED),
        patch("strategic", f"{PODS}/sized", _resources(limits={"cpu": "600m"})),
    ]


def _conditions(*kinds: str, status: str = "True") -> list[dict[str, str]]:
    moment = "2026-11-23T10:00:00Z"
    both = {"lastProbeTime": moment, "lastTransitionTime": moment, "reason": "Known", "message": "known"}
    return [{"type": kind, "status": status, **both} for kind in kinds]


def statuses() -> list[Step]:
    """Statuses of a Job of another controller, as that controller may write them."""

    def change(**status: Any) -> Step:
        fields = ["active", "ready", "failed", "startTime", "completionTime", "conditions"]
        shown = [f"status.{name}" for name in fields if status.get(name) != 0]
        return patch("merge", _COUNTED, {"status": status}, show=shown)

    began, ended = "2026-11-23T10:00:00Z", "2026-11-23T11:00:00Z"
    return [
        post(JOBS, job("counted", managedBy="example.com/other", completions=3), show=["spec.managedBy"]),
        get(_COUNTED, show=["kind"]),
        change(ready=1),
        change(active=2, ready=1, terminating=0),
        change(ready=3),
        change(active=-1),
        change(succeeded=-1),
        change(failed=-2),
        change(terminating=-1),
        change(failed=2),
        change(failed=1),
        change(completedIndexes="0-2"),
        change(failedIndexes="1"),
        change(completionTime=ended),
        change(startTime=began),
        change(conditions=_conditions("Complete")),
        change(conditions=_conditions("Failed")),
        change(conditions=_conditions("Complete", "Failed")),
        change(conditions=_conditions("FailureTarget", "SuccessCriteriaMet")),
        change(conditions=_conditions("SuccessCriteriaMet")),
        change(conditions=[]),
        change(conditions=_conditions("SuccessCriteriaMet", "Complete"), completionTime=ended),
        change(
            conditions=_conditions("SuccessCriteriaMet", "Complete"),
            completionTime="2026-11-23T09:00:00Z",
            active=0,
            ready=0,
        ),
        change(
            conditions=_conditions("SuccessCriteriaMet", "Complete"),
            completionTime=ended,
            active=0,
            ready=0,
            succeeded=3,
        ),
        change(active=1),
        change(terminating=1),
        change(succeeded=2),
        change(completionTime="2026-11-23T12:00:00Z"),
        change(conditions=_conditions("SuccessCriteriaMet")),
        change(conditions=_conditions("Complete", status="False")),
        change(startTime=None),
        patch("merge", _COUNTED, {"status": {"active": "many"}}),
        patch("merge", _COUNTED, {"spec": {"suspend": False}}, show=["spec.suspend"]),
    ]


def documents() -> list[Step]:
    """OpenAPI documents."""
    return [
        get("/openapi/v3/api/v1", show=["openapi", "info.title"]),
        get("/openapi/v3/apis/batch/v1", show=["openapi", "info.title"]),
        get("/openapi/v3/apis/batch/v9"),
        get("/openapi/v3/nothing"),
    ]


def steps() -> list[Step]:
    """All of them, in order."""
    return [*resizes(), *statuses(), *documents()]
