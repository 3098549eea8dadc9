"""Limit ranges and quotas: their own rules, and what the plugin LimitRanger does with new pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.rules.amounts import amount
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems
    from cloudrec_sandbox.kubernetes.storage.store import Store

_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
# From the tightest to the loosest: each must not be above the next.
_ORDER = ("min", "defaultRequest", "default", "max")


@check("limitranges")
def _limit_range(change: Change, problems: Problems) -> None:
    for index, limit in enumerate(change.spec.get("limits") or ()):
        path = f"spec.limits[{index}]"
        if limit.get("type") == "Pod":
            for name in ("default", "defaultRequest"):
                if limit.get(name):
                    problems.forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
        for number, low in enumerate(_ORDER):
            for high in _ORDER[number + 1 :]:
                _check_order(limit, low, high, path, problems)


def _check_order(limit: Mapping[str, Any], low: str, high: str, path: str, problems: Problems) -> None:
    for name, value in (limit.get(low) or {}).items():
        most = (limit.get(high) or {}).get(name)
        if most is not None and amount(value) > amount(most):
            why = f"{low} value {value} is greater than {high} value {most}"
            problems.invalid(f"{path}.{low}[{name}]", value, why)


def complete(limits: Any) -> None:  # noqa: ANN401 - JSON
    """Fill in a range: a limit's default is its maximum, a request's the limit's (core/v1/defaults.go)."""
    for limit in limits or ():
        if limit.get("type") != "Container":
            continue
        for low, high in (("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")):
            for name, value in (limit.get(high) or {}).items():
                limit.setdefault(low, {}).setdefault(name, value)


@check("resourcequotas")
def _quota(change: Change, problems: Problems) -> None:
    for name, value in (change.spec.get("hard") or {}).items():
        if amount(value) < 0:
            problems.invalid(f"spec.hard[{name}]", value, "must be greater than or equal to 0")


def _ranges(store: Store, namespace: str) -> Iterator[Mapping[str, Any]]:
    for entry in store.table.all("limitranges", namespace):
        yield from entry.obj["spec"].get("limits") or ()


def _containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def fill(store: Store, pod: dict[str, Any]) -> None:
    """Give containers the requests and limits that they leave out."""
    for limit in _ranges(store, pod["metadata"]["namespace"]):
        if limit.get("type") != "Container":
            continue
        for container in _containers(pod["spec"]):
            resources = container.setdefault("resources", {})
            for field, source in (("limits", "default"), ("requests", "defaultRequest")):
                for name, value in (limit.get(source) or {}).items():
                    resources.setdefault(field, {}).setdefault(name, value)


def refuse(store: Store, pod: Mapping[str, Any]) -> None:
    """Refuse with 403 a pod that is below or above what its namespace allows."""
    found: list[str] = []
    for limit in _ranges(store, pod["metadata"]["namespace"]):
        if limit.get("type") == "Container":
            for container in _containers(pod["spec"]):
                found += _outside(limit, container.get("resources") or {})
    if found:
        text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise errors.forbidden("pods", "", pod["metadata"]["name"], text)


def _outside(limit: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, least in (limit.get("min") or {}).items():
        if name not in requests:
            yield f"minimum {name} usage per Container is {least}.  No request is specified"
        elif amount(requests[name]) < amount(least):
            yield f"minimum {name} usage per Container is {least}, but request is {requests[name]}"
    for name, most in (limit.get("max") or {}).items():
        if name not in limits:
            yield f"maximum {name} usage per Container is {most}.  No limit is specified"
        elif amount(limits[name]) > amount(most):
            yield f"maximum {name} usage per Container is {most}, but limit is {limits[name]}"
