"""Which definitions Logic Apps accepts, and the parts of a definition.

Sources: azure-rest-api-specs, Microsoft.Logic 2019-05-01 (Workflow, Recurrence); the schema of the Workflow
Definition Language, 2016-06-01; "Schema reference guide for trigger and action types" (If, Http, Compose,
Wait; runAfter takes Succeeded, Failed, Skipped and TimedOut); "Limits and configuration reference".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.services.logic import functions
from cloudrec_sandbox.azure.services.logic.refusals import absent, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECONDS = {"Second": 1.0, "Minute": 60.0, "Hour": 3600.0, "Day": 86400.0}
FINAL = frozenset({"Succeeded", "Failed", "Skipped", "TimedOut"})

_SCHEMA = re.compile(
    r"https://schema\.management\.azure\.com/(providers/Microsoft\.Logic/)?schemas/2016-06-01/"
    r"[Ww]orkflowdefinition\.json#?"
)
_FREQUENCIES = (*SECONDS, "Week", "Month", "Year")
_NAME = re.compile(r"[^<>%&\\?/]{1,80}")
_MOST = 500  # actions and triggers of a workflow, the nested ones too
_TYPES = ("Compose", "Http", "If", "Wait")
_MEMBERS = ("type", "inputs", "runAfter", "operationOptions", "expression", "actions", "else", "description")
_TRIED = ("retryPolicy", "authentication", "method", "uri", "headers", "body", "queries", "cookie")
_FIXED = re.compile(r"PT(\d+)([SMH])")
_LEAST_PAUSE_S, _MOST_PAUSE_S, _MOST_TRIES = 5, 86400, 90
_DEFAULT_PAUSES = (7.5, 15.0, 30.0, 45.0)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One action of a definition.

    Attributes:
        name: its name, unique in the definition.
        action: the action.
        parent: the If that it is in; empty for none.
        branch: "actions" or "else" of that If.
        after: the actions that it runs after, each with the statuses.
    """

    name: str
    action: Mapping[str, Any]
    parent: str
    branch: str
    after: Mapping[str, Any]


def steps(definition: Mapping[str, Any]) -> dict[str, Step]:
    """Return all actions by name, each after the If that it is in; ArmError for a name that is used twice."""
    found: dict[str, Step] = {}
    for step in _steps(definition.get("actions") or {}, "", ""):
        if step.name in found:
            raise invalid(f"The name '{step.name}' is used by more than one action.")
        found[step.name] = step
    return found


def _steps(actions: Mapping[str, Any], parent: str, branch: str) -> Iterator[Step]:
    for name, action in actions.items():
        if not isinstance(action, dict):
            raise invalid(f"The action '{name}' is no object.")
        after = action.get("runAfter") or {}
        yield Step(name=name, action=action, parent=parent, branch=branch, after=after)
        if action.get("type") == "If":
            yield from _steps(action.get("actions") or {}, name, "actions")
            yield from _steps((action.get("else") or {}).get("actions") or {}, name, "else")


def parameters(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters: their defaults."""
    return {name: each.get("defaultValue") for name, each in (definition.get("parameters") or {}).items()}


def recurrence(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recurrence of the only trigger."""
    (trigger,) = definition["triggers"].values()
    found: dict[str, Any] = trigger.get("recurrence") or {}
    return found


def period_s(definition: Mapping[str, Any]) -> float:
    """Return the seconds between two runs."""
    found = recurrence(definition)
    return SECONDS[found["frequency"]] * float(found["interval"])


def moment(text: object) -> float:
    """Return a time in seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError as error:
        raise invalid(f"'{text}' is not a valid time.") from error


def pauses(inputs: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the seconds before each repetition of an HTTP action ("Handle errors and exceptions")."""
    policy = inputs.get("retryPolicy") or {"type": "default"}
    kind = str(policy.get("type", "")).lower()
    if kind in {"default", "none"}:
        return _DEFAULT_PAUSES if kind == "default" else ()
    if kind != "fixed":
        raise absent(f"a retry policy of type {policy.get('type')!r}")
    count, found = policy.get("count"), _FIXED.fullmatch(str(policy.get("interval")))
    if not isinstance(count, int) or not 1 <= count <= _MOST_TRIES or found is None:
        raise invalid(f"The retry policy {policy} has an invalid count or interval.")
    pause_s = int(found[1]) * {"S": 1.0, "M": 60.0, "H": 3600.0}[found[2]]
    if not _LEAST_PAUSE_S <= pause_s <= _MOST_PAUSE_S:
        raise invalid(f"The interval of the retry policy {policy} is not between 5 seconds and a day.")
    return (pause_s,) * count


def wait_s(inputs: Mapping[str, Any]) -> float:
    """Return how long a Wait takes, in seconds."""
    if "until" in inputs:
        raise absent("a Wait until a time")
    interval = inputs.get("interval") or {}
    count, unit = interval.get("count"), interval.get("unit")
    if unit in ("Week", "Month"):
        raise absent(f"a Wait in the unit {unit}")
    if unit not in SECONDS or not isinstance(count, int) or count < 1:
        raise invalid(f"The interval {interval} of a Wait has an invalid count or unit.")
    return SECONDS[unit] * count


def check(definition: Mapping[str, Any]) -> None:
    """Refuse a definition that Logic Apps does not accept."""
    if not _SCHEMA.fullmatch(str(definition.get("$schema", ""))):
        raise invalid(f"The '$schema' property '{definition.get('$schema')}' is missing or not supported.")
    if "contentVersion" not in definition:
        raise invalid("The 'contentVersion' property is missing.")
    _check_parameters(definition.get("parameters") or {})
    triggers, all_steps = definition.get("triggers") or {}, steps(definition)
    for name in (*triggers, *all_steps):
        if not _NAME.fullmatch(name):
            raise invalid(f"The name '{name}' has an invalid character, or more than 80.")
    if len(triggers) + len(all_steps) > _MOST:
        raise invalid(f"The definition has more than {_MOST} actions.")
    if [trigger.get("type") for trigger in triggers.values()] != ["Recurrence"]:
        raise absent("a workflow whose only trigger is not a recurrence")
    _check_recurrence(recurrence(definition))
    known = frozenset(definition.get("parameters") or {})
    for step in all_steps.values():
        _check_order(step, all_steps)
        _check_step(step)
        before = _before(step, all_steps)
        for part in ("inputs", "expression"):
            functions.check(step.action.get(part), user=step.name, before=before, parameters=known)


def _check_parameters(found: Mapping[str, Any]) -> None:
    for name, each in found.items():
        if str(each.get("type", "")).lower() != "string":
            raise absent(f"a parameter of type {each.get('type')!r}")
        if not isinstance(each.get("defaultValue"), str):
            raise invalid(f"The parameter '{name}' has no value: its default value is no string.")


def _check_recurrence(found: Mapping[str, Any]) -> None:
    unknown = found.keys() - {"frequency", "interval", "startTime", "endTime", "timeZone", "schedule"}
    frequency, interval = found.get("frequency"), found.get("interval")
    if unknown or frequency not in _FREQUENCIES or not isinstance(interval, int) or interval < 1:
        raise invalid(f"The recurrence {found} has an invalid frequency, interval or property.")
    if frequency not in SECONDS or "schedule" in found or "timeZone" in found:
        raise absent("such a recurrence")
    for name in ("startTime", "endTime"):
        if name in found:
            moment(found[name])


def _check_order(step: Step, all_steps: Mapping[str, Step]) -> None:
    """Refuse an action that runs after one that is not beside it, in no status, or after itself."""
    for other, statuses in step.after.items():
        found = all_steps.get(other)
        if found is None or (found.parent, found.branch) != (step.parent, step.branch):
            raise invalid(f"The action '{step.name}' runs after '{other}', which does not exist beside it.")
        if not isinstance(statuses, list) or not statuses or not set(statuses) <= FINAL:
            raise invalid(f"The action '{step.name}' runs after '{other}' in the statuses {statuses}.")
    if step.name in _before(step, all_steps):
        raise invalid(f"The action '{step.name}' runs after itself.")


def _before(step: Step, all_steps: Mapping[str, Step]) -> frozenset[str]:
    """Return the actions that end before an action."""
    found: set[str] = set()
    waiting = [*step.after]
    if step.parent:
        found |= _before(all_steps[step.parent], all_steps)
    while waiting:
        name = waiting.pop()
        if name not in found and name in all_steps:
            found.add(name)
            waiting += all_steps[name].after
    return frozenset(found)


def _check_step(step: Step) -> None:
    kind, action, name = step.action.get("type"), step.action, step.name
    if kind not in _TYPES:
        raise absent(f"an action of type {kind!r}")
    if unknown := sorted(action.keys() - set(_MEMBERS)):
        raise absent(f"{', '.join(unknown)} of the action '{name}'")
    if kind == "If":
        if not isinstance(action.get("expression"), str | dict) or not action["expression"]:
            raise invalid(f"The action '{name}' has no expression.")
        _check_condition(action["expression"])
        if not isinstance(action.get("actions"), dict):
            raise invalid(f"The action '{name}' has no actions.")
    elif "inputs" not in action:
        raise invalid(f"The action '{name}' has no inputs.")
    elif kind == "Wait":
        wait_s(action["inputs"])
    elif kind == "Http":
        _check_http(name, action)


def _check_condition(found: Any) -> None:  # noqa: ANN401 - JSON
    """Refuse a condition of the designer's form whose operator is none."""
    for operator, arguments in found.items() if isinstance(found, dict) else ():
        if operator.lower() not in functions.KNOWN:
            raise absent(f"the operator {operator!r} of a condition")
        for each in arguments if isinstance(arguments, list) else [arguments]:
            _check_condition(each)


def _check_http(name: str, action: Mapping[str, Any]) -> None:
    inputs = action["inputs"] or {}
    if missing := [each for each in ("method", "uri") if not inputs.get(each)]:
        raise invalid(f"The inputs of action '{name}' lack {', '.join(missing)}.")
    if unknown := sorted(inputs.keys() - set(_TRIED)):
        raise invalid(f"The inputs of action '{name}' have unknown properties: {', '.join(unknown)}.")
    authentication = inputs.get("authentication") or {}
    if authentication.get("type", "ManagedServiceIdentity") != "ManagedServiceIdentity":
        raise absent(f"authentication of type {authentication['type']!r}")
    options = action.get("operationOptions", "DisableAsyncPattern")
    if options not in {"DisableAsyncPattern", "SuppressWorkflowHeaders"}:
        raise invalid(f"The operation option '{options}' of action '{name}' is not supported.")
    pauses(inputs)
