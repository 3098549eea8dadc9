"""Subresources: evictions, scales, bindings, tokens."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.kubernetes.api import reads
from cloudrec_sandbox.kubernetes.objects import errors, merge, patches, selectors
from cloudrec_sandbox.kubernetes.objects.table import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.api.call import Call

_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_S = 10
_UNTOUCHED = ("Pending", "Succeeded", "Failed")
_LEAST_TOKEN_S = 600


def evict(call: Call) -> Reply:
    """Delete a pod, unless a disruption budget forbids it with 429."""
    pod = copied(reads.existing(call).obj)
    if (named := (call.object.get("metadata") or {}).get("name")) != call.target.name:
        raise errors.bad_request(f"name in URL does not match name in Eviction object: {named}")
    # A pod that is not running yet, or has ended, is no part of the service that a budget protects.
    if (pod.get("status") or {}).get("phase") not in _UNTOUCHED:
        _check_budgets(call, pod)
    if not call.dry_run:
        # Before the deletion, which may remove the pod at once: its Job must see the disruption.
        _mark(call, pod)
        options = call.object.get("deleteOptions") or {}
        metadata = pod["metadata"]
        call.store.delete(
            "pods",
            metadata["namespace"],
            metadata["name"],
            options.get("gracePeriodSeconds"),
            preconditions=options.get("preconditions"),
        )
    return json_reply(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
        HTTPStatus.CREATED,
    )


def _mark(call: Call, pod: dict[str, Any]) -> None:
    """Set the pod's condition DisruptionTarget, which says that the pod did not fail by itself."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": call.store.timestamp(),
    }
    status = pod.setdefault("status", {})
    kept = [each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"]
    status["conditions"] = [*kept, condition]
    call.store.update("pods", pod, "status")


def _check_budgets(call: Call, pod: Mapping[str, Any]) -> None:
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    for entry in call.store.table.all("poddisruptionbudgets", namespace):
        budget = entry.obj
        selector = budget["spec"].get("selector")
        if selector is None or not selectors.matches(selector, labels):
            continue
        healthy, wanted = _health(call, budget, namespace)
        # PodDisruptionBudgetSpec in the API model, the default policy IfHealthyBudget: a pod that is not
        # ready may be evicted, unless too few are healthy already.
        if healthy - wanted < (1 if _is_ready(pod) else 0):
            name = budget["metadata"]["name"]
            text = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            cause = {"reason": "DisruptionBudget", "message": text}
            raise errors.too_many(_BLOCKED, _RETRY_S, causes=[cause])


def _health(call: Call, budget: Mapping[str, Any], namespace: str) -> tuple[int, int]:
    """Return how many pods of a budget are healthy, and how many must be."""
    spec = budget["spec"]
    pods = [
        entry.obj
        for entry in call.store.table.all("pods", namespace)
        if selectors.matches(spec["selector"], entry.obj["metadata"].get("labels") or {})
        and (entry.obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    healthy = sum(1 for pod in pods if _is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
    if "maxUnavailable" in spec:
        return healthy, max(0, len(pods) - _count(spec["maxUnavailable"], len(pods)))
    return healthy, _count(spec.get("minAvailable", 1), len(pods))


def _count(wanted: int | str, whole: int) -> int:
    if isinstance(wanted, str):
        return math.ceil(int(wanted.rstrip("%")) * whole / 100)
    return wanted


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def scale(call: Call) -> Reply:
    """Return or change the number of replicas."""
    obj = copied(reads.existing(call).obj)
    shown = _scale(obj)
    if call.target.verb == "get":
        return json_reply(shown)
    if call.target.verb == "update":
        wish = call.object
    elif call.content_type == "application/json-patch+json":
        wish = patches.json_patch(shown, call.body)
    else:
        wish = merge.merged(shown, call.object)
    # Only the number changes, but with the version that the client has read: two writers must not both win.
    version = (wish.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    replicas = (wish.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        blame = errors.cause("spec.replicas", f"Invalid value: {replicas}: must be 0 or more")
        raise errors.invalid("Scale", "autoscaling", call.target.name, [blame])
    obj["spec"]["replicas"] = replicas
    return json_reply(_scale(call.store.update(call.resource.key, obj, dry_run=call.dry_run)))


def _scale(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in labels.items()),
        },
    }


def bind(call: Call) -> Reply:
    """Bind a pod to a node, once."""
    pod = copied(reads.existing(call).obj)
    node = (call.object.get("target") or {}).get("name", "")
    taken = pod["spec"].get("nodeName")
    if not node:
        raise errors.ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "", "Binding target name is required")
    if taken:
        why = f'pod {call.target.name} is already assigned to node "{taken}"'
        raise errors.conflict("pods/binding", "", call.target.name, why)
    pod["spec"]["nodeName"] = node
    call.store.update("pods", pod, dry_run=call.dry_run)
    return json_reply(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
        HTTPStatus.CREATED,
    )


def token(call: Call) -> Reply:
    """Return a token of a service account."""
    account = reads.existing(call).obj
    spec = call.object.get("spec") or {}
    seconds = int(spec.get("expirationSeconds") or 3600)
    if seconds < _LEAST_TOKEN_S:
        blame = errors.cause(
            "spec.expirationSeconds",
            f"Invalid value: {seconds}: may not specify a duration less than 10 minutes",
        )
        raise errors.invalid("TokenRequest", "authentication.k8s.io", call.target.name, [blame])
    audience = next(iter(spec.get("audiences") or ()), "")
    status = {
        "token": call.store.tokens.of_account(account, seconds, audience),
        "expirationTimestamp": call.store.timestamp(seconds),
    }
    obj = {"metadata": {"name": call.target.name}, "spec": {**spec, "expirationSeconds": seconds}}
    reply = {**obj, "status": status, "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
    return json_reply(reply, HTTPStatus.CREATED)
