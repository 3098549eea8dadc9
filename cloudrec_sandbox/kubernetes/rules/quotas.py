"""ResourceQuotas of cores, memory, devices and pods; admission of pods counts them.

The rules and the words are those of a Kubernetes 1.36 API server, which was asked with the same pods: each
container must state what a quota of cores or memory counts, and a pod must fit into what is left. Quotas of
other objects (`count/...`, services) and `scopeSelector` are not counted. The status of a quota is not kept.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.rules.amounts import amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.storage.store import Store

_STATED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_ENDED = ("Succeeded", "Failed")


def check(store: Store, pod: Mapping[str, Any]) -> None:
    """Refuse with 403 a new pod that does not fit into the quotas of its namespace."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    quotas = [
        entry.obj
        for entry in store.table.all("resourcequotas")
        if entry.obj["metadata"]["namespace"] == namespace and _covers(entry.obj, pod)
    ]
    for quota in sorted(quotas, key=lambda each: str(each["metadata"]["name"])):
        hard = (quota.get("spec") or {}).get("hard") or {}
        title = quota["metadata"]["name"]
        if unstated := _unstated(pod, hard):
            raise errors.forbidden("pods", "", name, f"failed quota: {title}: must specify {unstated}")
        if over := _excess(store, quota, pod, hard):
            parts = (
                f"{label}: {','.join(f'{key}={row[column]}' for key, row in over.items())}"
                for column, label in enumerate(("requested", "used", "limited"))
            )
            raise errors.forbidden("pods", "", name, f"exceeded quota: {title}, {', '.join(parts)}")


def _covers(quota: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a quota counts a pod, by its scopes."""
    is_best_effort = (pod.get("status") or {}).get("qosClass") == "BestEffort"
    has_end = pod["spec"].get("activeDeadlineSeconds") is not None
    holds = {
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
        "Terminating": has_end,
        "NotTerminating": not has_end,
    }
    return all(holds.get(scope, True) for scope in (quota.get("spec") or {}).get("scopes") or ())


def _unstated(pod: Mapping[str, Any], hard: Mapping[str, Any]) -> str:
    lacking: dict[str, list[str]] = {}
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    for key in sorted(key for key in hard if key in _STATED):
        part, resource = _parted(key)
        without = [each["name"] for each in containers if resource not in _stated(each, part)]
        if without:
            lacking[key] = without
    return "; ".join(f"{key} for: {','.join(names)}" for key, names in lacking.items())


def _excess(
    store: Store, quota: Mapping[str, Any], pod: Mapping[str, Any], hard: Mapping[str, Any]
) -> dict[str, tuple[str, str, str]]:
    others = [
        entry.obj
        for entry in store.table.all("pods")
        if entry.obj["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and (entry.obj.get("status") or {}).get("phase") not in _ENDED
        and _covers(quota, entry.obj)
    ]
    over = {}
    for key in sorted(key for key in hard if key == "pods" or _parted(key)[0]):
        wanted, used = _sum(pod, key), sum((_sum(each, key) for each in others), Decimal(0))
        if wanted and wanted + used > amount(hard[key]):
            over[key] = (_text(wanted), _text(used), str(hard[key]))
    return over


def _sum(pod: Mapping[str, Any], key: str) -> Decimal:
    if key == "pods":
        return Decimal(1)
    part, resource = _parted(key)
    each = [amount(_stated(one, part).get(resource, 0)) for one in pod["spec"]["containers"]]
    first = [amount(_stated(one, part).get(resource, 0)) for one in pod["spec"].get("initContainers") or ()]
    return max(sum(each, Decimal(0)), *first, Decimal(0))


def _parted(key: str) -> tuple[str, str]:
    """Return requests or limits, and the resource; an empty text for a quota of other objects."""
    if key in ("cpu", "memory"):
        return "requests", key
    part, _, resource = key.partition(".")
    return (part, resource) if part in ("requests", "limits") else ("", key)


def _stated(container: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return limits if part == "limits" else {**limits, **(resources.get("requests") or {})}


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"
