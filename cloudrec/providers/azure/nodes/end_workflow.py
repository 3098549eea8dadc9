"""The workflow of Logic Apps that deletes the pools of GPU nodes, in the Workflow Definition Language.

An end that stays is the time at which the recurrence begins. An end that the guard moves is a tag of the
workflow, which every run reads: the guard may change the tag, and nothing of what the workflow does. The
definition has an end, too, which counts where the tag cannot be read or is no time. One failed read must not
end the nodes early, so the read is repeated, and made again after five minutes, before the definition's end
counts. This delays no end, since another run begins every two minutes.

Sources: "Schema reference guide for trigger and action types" (If, Compose, Wait, runAfter with the statuses
Succeeded, Failed, Skipped, TimedOut), "Reference guide to workflow expression functions" (ticks fails for
what is no timestamp; coalesce returns the first value that is not null), "Handle errors and exceptions"
(retry policies repeat 408, 429 and 5xx), "Schedules for recurring triggers" (a start in the past only sets
the times of the runs), "Tags - Get At Scope".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_EXPIRES

if TYPE_CHECKING:
    from collections.abc import Iterable

TRIGGER = "end"
# The parameters of a definition whose end can move: the end if the tag is not read, and the latest end.
END, LIMIT = "end", "limit"
TAGS_VERSION = "2021-04-01"  # of the tags API

_POOLS_VERSION = "2025-10-01"  # of AKS's API
_SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
_DAY = timedelta(days=1)
_EVERY_MIN = 2  # minutes between two reads of an end that can move
_GRID = "2026-01-01T00:00:00Z"  # in the past: a change of the workflow does not shift its runs
_STEPS = 4  # executions of a run before the end: the trigger, the read, the end that it gives, the condition
EXECUTIONS_H = _STEPS * 60 / _EVERY_MIN
_REPEATED = {"type": "fixed", "count": 4, "interval": "PT15S"}
_AGAIN_MIN = 5
_DECIDE = "end_nodes"
_ENDED = ("Succeeded", "Failed", "Skipped", "TimedOut")
_FAILED = ("Failed", "TimedOut")


@dataclass(frozen=True, kw_only=True)
class EndCalls:
    """What the calls of the workflow need.

    Attributes:
        arm: the URL of Azure Resource Manager.
        cluster: the id of the AKS cluster.
        pools: the names of the pools of GPU nodes that may exist.
        identity: the id of the identity that makes the calls.
    """

    arm: str
    cluster: str
    pools: Iterable[str]
    identity: str

    def deletions(self) -> dict[str, Any]:
        """Return the actions that delete the pools."""
        # Without `runAfter` the actions run side by side, and a refusal of one does not stop the others.
        return {f"delete_{pool}": self._deletion(pool) for pool in sorted(self.pools)}

    def _deletion(self, pool: str) -> dict[str, object]:
        query = f"api-version={_POOLS_VERSION}&ignore-pod-disruption-budget=true"
        return {
            "type": "Http",
            "runAfter": {},
            "operationOptions": "DisableAsyncPattern",  # the identity may not read the operation
            "inputs": self._call("DELETE", f"{self.cluster}/agentPools/{pool}?{query}"),
        }

    def reading(self, workflow: str, after: Mapping[str, object]) -> dict[str, object]:
        """Return the action that reads the workflow's tags."""
        path = f"{workflow}/providers/Microsoft.Resources/tags/default?api-version={TAGS_VERSION}"
        inputs = {**self._call("GET", path), "retryPolicy": dict(_REPEATED)}
        return {"type": "Http", "runAfter": dict(after), "inputs": inputs}

    def _call(self, method: str, path: str) -> dict[str, object]:
        return {
            "method": method,
            "uri": f"{self.arm}{path}",
            "authentication": {
                "type": "ManagedServiceIdentity",
                "identity": self.identity,
                "audience": f"{self.arm}/",
            },
        }


def fixed(calls: EndCalls, *, expires: str) -> dict[str, Any]:
    """Return a workflow whose end stays: it begins then, and repeats its calls each minute for a day.

    Args:
        calls: what it calls.
        expires: the end, ISO 8601.
    """
    end = datetime.fromisoformat(expires).astimezone(UTC)
    recurrence = {
        "frequency": "Minute",
        "interval": 1,
        "startTime": _written(end),
        "endTime": _written(end + _DAY),
    }
    return _definition(recurrence, {}, calls.deletions())


def movable(calls: EndCalls, *, workflow: str, expires: str, limit: str | None) -> dict[str, Any]:
    """Return a workflow that reads its end in its own tag every two minutes, and ends the nodes from then on.

    It never stops by itself: an end that cannot be read may be any time from now.

    Args:
        calls: what it calls.
        workflow: its own id.
        expires: the end if the tag cannot be read, ISO 8601.
        limit: the end that counts whatever the tag is, ISO 8601; None for none.
    """
    ends = {END: expires, **({LIMIT: limit} if limit else {})}
    parameters = {
        name: {"type": "String", "defaultValue": _written(datetime.fromisoformat(each).astimezone(UTC))}
        for name, each in ends.items()
    }
    recurrence = {"frequency": "Minute", "interval": _EVERY_MIN, "startTime": _GRID}
    actions = {
        "read_end": calls.reading(workflow, {}),
        "take_end": _taking("read_end"),
        "wait": {
            "type": "Wait",
            "runAfter": {"read_end": list(_FAILED)},
            "inputs": {"interval": {"count": _AGAIN_MIN, "unit": "Minute"}},
        },
        "read_again": calls.reading(workflow, {"wait": ["Succeeded"]}),
        "take_again": _taking("read_again"),
        _DECIDE: {
            "type": "If",
            "runAfter": {"take_end": list(_ENDED), "take_again": list(_ENDED)},
            "expression": _condition(is_limited=bool(limit)),
            "actions": calls.deletions(),
            "else": {"actions": {}},
        },
    }
    return _definition(recurrence, parameters, actions)


def _taking(read: str) -> dict[str, object]:
    """Return the action that takes the end from what was read; it fails if that is no time."""
    tag = f"body('{read}')?['properties']?['tags']?['{TAG_EXPIRES}']"
    return {"type": "Compose", "runAfter": {read: ["Succeeded"]}, "inputs": f"@ticks({tag})"}


def _condition(*, is_limited: bool) -> str:
    """Return whether the end has passed: the one that was read, or else the definition's."""
    taken = ", ".join(f"actions('{name}')?['outputs']" for name in ("take_again", "take_end"))
    end = f"coalesce({taken}, ticks(parameters('{END}')))"
    if is_limited:
        end = f"min({end}, ticks(parameters('{LIMIT}')))"
    return f"@greaterOrEquals(ticks(utcNow()), {end})"


def _definition(
    recurrence: Mapping[str, object], parameters: Mapping[str, object], actions: Mapping[str, object]
) -> dict[str, Any]:
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": dict(parameters),
        "triggers": {TRIGGER: {"type": "Recurrence", "recurrence": dict(recurrence)}},
        "actions": dict(actions),
    }


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def deletions(of: Any) -> dict[str, Any]:  # noqa: ANN401 - a definition that others may have changed
    """Return the actions of a definition that delete pools, of either form."""
    actions = _mapping(_mapping(of).get("actions"))
    inner = _mapping(_mapping(actions.get(_DECIDE)).get("actions"))
    return {name: each for name, each in {**actions, **inner}.items() if name.startswith("delete_")}


def with_deletions(of: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with these actions that delete pools, and no others."""
    actions = _mapping(of.get("actions"))
    if _DECIDE in actions:
        inner = {**_mapping(actions[_DECIDE]), "actions": dict(wanted)}
        return {**of, "actions": {**actions, _DECIDE: inner}}
    others = {name: each for name, each in actions.items() if not name.startswith("delete_")}
    return {**of, "actions": {**others, **wanted}}


def with_end(of: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with another one's end for the case that the tag cannot be read."""
    parameters, other = _mapping(of.get("parameters")), _mapping(wanted.get("parameters"))
    if END not in parameters or END not in other:
        return dict(of)
    return {**of, "parameters": {**parameters, END: other[END]}}


def start(of: Any) -> str:  # noqa: ANN401 - a definition that others may have changed
    """Return when a workflow begins to end the nodes; empty if a tag decides, or it cannot be read."""
    if END in _mapping(_mapping(of).get("parameters")):
        return ""
    try:
        return str(of["triggers"][TRIGGER]["recurrence"]["startTime"])
    except (KeyError, TypeError):
        return ""


def _mapping(found: Any) -> Mapping[str, Any]:  # noqa: ANN401 - a definition that others may have changed
    return found if isinstance(found, Mapping) else {}
