"""Logic Apps' workflows: what a definition must have, and the calls that a recurrence makes.

Sources: azure-rest-api-specs, Microsoft.Logic 2019-05-01 (Workflow, Recurrence); the schema of the Workflow
Definition Language, 2016-06-01; "Schedules for recurring triggers" (the first run is at startTime); "Handle
errors and exceptions" (a retry policy repeats 408, 429 and 5xx only); "Authenticate with managed identities".
The stand-in has recurrences by the minute, hour or day, and HTTP calls to Azure Resource Manager.
"""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from cloudrec_sandbox.azure.arm import registry, target
from cloudrec_sandbox.azure.arm.call import Call, Caller
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.identity import identities
from cloudrec_sandbox.core.http import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Logic/workflows"
APIS = ("2019-05-01", "2016-06-01")

_SCHEMA = re.compile(
    r"https://schema\.management\.azure\.com/(providers/Microsoft\.Logic/)?schemas/2016-06-01/"
    r"[Ww]orkflowdefinition\.json#?"
)
_SECONDS = {"Minute": 60.0, "Hour": 3600.0, "Day": 86400.0}
_FREQUENCIES = ("Second", *_SECONDS, "Week", "Month", "Year")
_STATES = ("Enabled", "Disabled")
_NAME = re.compile(r"[^<>%&\\?/]{1,80}")
_MOST = 500  # actions and triggers of a workflow ("Limits and configuration reference")
_ARM = "management.azure.com"
_ASSIGN = f"{identities.TYPE}/assign/action"
_TRIED = ("retryPolicy", "authentication", "method", "uri", "headers", "body", "queries", "cookie")


@register
class Workflows(Kind):
    """Workflows of the Consumption plan: created, changed and removed at once."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    name_rule = r"[\w.()-]{1,80}"
    malformed = "InvalidRequestContent"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse a definition that Logic Apps does not accept."""
        properties = body.get("properties") or {}
        if properties.get("state", "Enabled") not in _STATES:
            raise ArmError("InvalidWorkflowProperty", f"The state is not one of {', '.join(_STATES)}.")
        definition = properties.get("definition")
        if not isinstance(definition, dict):
            raise ArmError("WorkflowDefinitionMissing", "The workflow has no definition.")
        _check_definition(definition)
        named = _users(body)
        for identity in named:
            if identities.find(call.world, identity) is None:
                raise ArmError(
                    "FailedIdentityOperation",
                    f"Identity operation for resource '{call.path.text}' failed: the identity "
                    f"'{identity}' was not found.",
                )
        for name, action in definition["actions"].items():
            identity = str((action["inputs"].get("authentication") or {}).get("identity") or "")
            if identity and identity.lower() not in {each.lower() for each in named}:
                raise ArmError(
                    "WorkflowManagedIdentityNotSpecified",
                    f"The action '{name}' uses the managed identity '{identity}', which the workflow "
                    "does not have.",
                )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in what Logic Apps adds, and plan the first run."""
        resource.properties.setdefault("state", "Enabled")
        definition = resource.properties["definition"]
        definition |= {"parameters": definition.get("parameters", {}), "outputs": {}}
        for trigger in definition["triggers"].values():
            trigger["evaluatedRecurrence"] = dict(trigger["recurrence"])
        version = int(resource.facts.get("version", 0)) + 1
        resource.facts["version"] = version
        recurrence = _recurrence(resource.properties["definition"])
        start = _moment(recurrence["startTime"]) if "startTime" in recurrence else call.world.client_now()
        call.world.after(
            call.world.until(start), run, resource.id, version, max(start, call.world.client_now())
        )

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the right to use each identity."""
        return [(_ASSIGN, identity) for identity in _users(body)]


def _users(body: Mapping[str, Any]) -> list[str]:
    """Return the ids of the user-assigned identities of a workflow."""
    return list(((body.get("identity") or {}).get("userAssignedIdentities") or {}).keys())


def _check_definition(definition: dict[str, Any]) -> None:
    if not _SCHEMA.fullmatch(str(definition.get("$schema", ""))):
        raise _invalid(f"The '$schema' property '{definition.get('$schema')}' is missing or not supported.")
    if "contentVersion" not in definition:
        raise _invalid("The 'contentVersion' property is missing.")
    triggers, actions = definition.get("triggers") or {}, definition.get("actions") or {}
    for name in (*triggers, *actions):
        if not _NAME.fullmatch(name):
            raise _invalid(f"The name '{name}' has an invalid character, or more than 80.")
    if len(triggers) + len(actions) > _MOST:
        raise _invalid(f"The definition has more than {_MOST} actions.")
    if [trigger.get("type") for trigger in triggers.values()] != ["Recurrence"]:
        raise _absent("a workflow whose only trigger is not a recurrence")
    _check_recurrence(_recurrence(definition))
    for name, action in actions.items():
        _check_action(name, action, actions)


def _check_recurrence(recurrence: dict[str, Any]) -> None:
    unknown = recurrence.keys() - {"frequency", "interval", "startTime", "endTime", "timeZone", "schedule"}
    frequency, interval = recurrence.get("frequency"), recurrence.get("interval")
    if unknown or frequency not in _FREQUENCIES or not isinstance(interval, int) or interval < 1:
        raise _invalid(f"The recurrence {recurrence} has an invalid frequency, interval or property.")
    if frequency not in _SECONDS or "schedule" in recurrence or "timeZone" in recurrence:
        raise _absent("such a recurrence")
    for name in ("startTime", "endTime"):
        if name in recurrence:
            _moment(recurrence[name])


def _check_action(name: str, action: dict[str, Any], actions: Mapping[str, Any]) -> None:
    for other in action.get("runAfter") or {}:
        if other not in actions:
            raise _invalid(f"The action '{name}' runs after '{other}', which does not exist.")
    if action.get("runAfter"):
        raise _absent("an order of actions")
    if action.get("type") != "Http":
        raise _absent(f"an action of type {action.get('type')!r}")
    inputs = action.get("inputs") or {}
    if missing := [each for each in ("method", "uri") if not inputs.get(each)]:
        raise _invalid(f"The inputs of action '{name}' lack {', '.join(missing)}.")
    if unknown := sorted(inputs.keys() - set(_TRIED)):
        raise _invalid(f"The inputs of action '{name}' have unknown properties: {', '.join(unknown)}.")
    authentication = inputs.get("authentication") or {}
    if authentication.get("type", "ManagedServiceIdentity") != "ManagedServiceIdentity":
        raise _absent(f"authentication of type {authentication['type']!r}")
    options = action.get("operationOptions", "DisableAsyncPattern")
    if options not in {"DisableAsyncPattern", "SuppressWorkflowHeaders"}:
        raise _invalid(f"The operation option '{options}' of action '{name}' is not supported.")


def _recurrence(definition: Mapping[str, Any]) -> dict[str, Any]:
    (trigger,) = definition["triggers"].values()
    found: dict[str, Any] = trigger.get("recurrence") or {}
    return found


def _moment(text: object) -> float:
    """Return a time in seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError as error:
        raise _invalid(f"'{text}' is not a valid time.") from error


def _invalid(reason: str) -> ArmError:
    return ArmError(
        "InvalidTemplate", f"The template validation failed: '{reason}'.", status=HTTPStatus.BAD_REQUEST
    )


def _absent(what: str) -> ArmError:
    """Return the answer to what Logic Apps has and this stand-in has not."""
    return ArmError("NotImplemented", f"this stand-in has not: {what}", status=HTTPStatus.NOT_IMPLEMENTED)


def run(world: World, workflow: str, version: int, due: float) -> None:
    """Make a run's calls, and plan the next run. `due` is its time by a client's clock."""
    resource = store(world).find(workflow)
    if resource is None or resource.deleting or resource.facts.get("version") != version:
        return
    definition = resource.properties["definition"]
    recurrence = _recurrence(definition)
    if "endTime" in recurrence and due > _moment(recurrence["endTime"]):
        return
    if resource.properties["state"] == "Enabled":
        resource.facts["runs"] = [_called(world, action) for action in definition["actions"].values()]
    pause = _SECONDS[recurrence["frequency"]] * recurrence["interval"]
    # A stand-in that runs faster than its clients' clocks repeats in its own time, as AKS's work takes it.
    world.after(pause, run, workflow, version, due + pause)


def _called(world: World, action: Mapping[str, Any]) -> int:
    """Make an HTTP call as its managed identity; return its status."""
    inputs = action["inputs"]
    authentication = inputs.get("authentication") or {}
    where = urlsplit(inputs["uri"])
    identity = identities.find(world, str(authentication.get("identity") or ""))
    if where.hostname != _ARM or identity is None or authentication.get("audience") != f"https://{_ARM}/":
        return HTTPStatus.UNAUTHORIZED
    request = HttpRequest(
        method=inputs["method"],
        target=f"{where.path}?{where.query}",
        headers={"Host": _ARM, **(inputs.get("headers") or {})},
    )
    found = target.identify(request)
    principal = identity.properties["principalId"]
    caller = Caller(
        principal=principal,
        client=identity.properties["clientId"],
        tenant=identity.properties["tenantId"],
    )
    if not access.has(world, principal, found.iam_action, found.path.text):
        return HTTPStatus.FORBIDDEN
    try:
        reply = registry.answer(Call(world=world, target=found, request=request, caller=caller))
    except ArmError as error:
        return error.status
    return reply.status
