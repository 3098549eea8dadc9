"""Groups of Prometheus' rules, which Azure Monitor evaluates on the metrics of a workspace.

Source: azure-rest-api-specs, Microsoft.AlertsManagement 2023-03-01 (PrometheusRuleGroups.json): required
members, the numbers of scopes and rules, the bounds of the interval and the severity; calls that are done
when they return.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError, malformed
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.monitor import collection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource

_MOST_RULES, _MOST_LABELS = 20, 10
_SEVERITIES = range(1, 5)
_INTERVALS = range(1, 16)  # minutes
_MINUTES = re.compile(r"PT(\d+)M")
_DURATION = re.compile(r"P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?")


@register
class RuleGroups(Kind):
    """Groups of rules."""

    type = "Microsoft.AlertsManagement/prometheusRuleGroups"
    apis: ClassVar[Sequence[str]] = ("2023-03-01",)
    name_rule = r"[^:@/#{}%&+*<>?]{1,260}"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the members, and that the workspace exists."""
        wish = body.get("properties") or {}
        if faults := list(_faults(wish)):
            raise malformed("BadRequest", faults)
        (scope,) = wish["scopes"]
        found = store(call.world).find(str(scope))
        if found is None or found.type != collection.WORKSPACE:
            raise ArmError("ScopeNotFound", f"The Azure Monitor workspace '{scope}' was not found.")


def _faults(wish: dict[str, Any]) -> Iterator[str]:
    scopes, rules = wish.get("scopes") or [], wish.get("rules") or []
    if len(scopes) != 1:
        yield f"properties.scopes: {len(scopes)}, and exactly 1 is supported"
    if not 1 <= len(rules) <= _MOST_RULES:
        yield f"properties.rules: {len(rules)}, of 1 to {_MOST_RULES}"
    found = _MINUTES.fullmatch(str(wish.get("interval", "PT1M")))
    if found is None or int(found[1]) not in _INTERVALS:
        yield f"properties.interval: {wish.get('interval')!r} is not between PT1M and PT15M"
    for rule in rules:
        yield from _rule_faults(rule)


def _rule_faults(rule: dict[str, Any]) -> Iterator[str]:
    if not rule.get("expression"):
        yield "properties.rules.expression: missing"
    if bool(rule.get("alert")) == bool(rule.get("record")):
        yield "properties.rules: a rule has either alert or record"
    if "severity" in rule and rule["severity"] not in _SEVERITIES:
        yield f"properties.rules.severity: {rule['severity']!r} is not between 1 and 4"
    if "for" in rule and not _DURATION.fullmatch(str(rule["for"])):
        yield f"properties.rules.for: {rule['for']!r} is no duration of ISO 8601"
    if len(rule.get("labels") or {}) > _MOST_LABELS:
        yield f"properties.rules.labels: more than {_MOST_LABELS}"
