"""Disruption budgets, roles and bindings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.kinds.networks import check_selector
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_PERCENT = re.compile(r"[0-9]+%")
_WHOLE = 100
_EVICTION = ("AlwaysAllow", "IfHealthyBudget")


@check("poddisruptionbudgets")
def _budget(change: Change, problems: Problems) -> None:
    spec = change.spec
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            _check_share(spec[name], f"spec.{name}", problems)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION:
        problems.unsupported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION)
    check_selector(spec.get("selector") or {}, "spec.selector", problems)


def _check_share(value: Any, path: str, problems: Problems) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, int):
        if value < 0:
            problems.invalid(path, value, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(value):
        problems.invalid(
            path, value, "a valid percent string must be a numeric string followed by an ending '%'"
        )
    elif int(value[:-1]) > _WHOLE:
        problems.invalid(path, value, "must not be greater than 100%")


@check("rolebindings", "clusterrolebindings")
def _binding(change: Change, problems: Problems) -> None:
    reference = change.new.get("roleRef") or {}
    kinds = ("ClusterRole",) if change.resource.key.startswith("cluster") else ("Role", "ClusterRole")
    if reference.get("kind") not in kinds:
        problems.unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    if not reference.get("name"):
        problems.required("roleRef.name")


@check("roles")
def _role(change: Change, problems: Problems) -> None:
    for index, rule in enumerate(change.new.get("rules") or ()):
        if rule.get("nonResourceURLs"):
            why = "namespaced rules cannot apply to non-resource URLs"
            problems.invalid(f"rules[{index}].nonResourceURLs", rule["nonResourceURLs"], why)
