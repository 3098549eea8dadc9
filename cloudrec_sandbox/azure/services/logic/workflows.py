"""Logic Apps' workflows: a resource with a definition and identities, which runs by its recurrence.

Sources: azure-rest-api-specs, Microsoft.Logic 2019-05-01 (Workflow); "Schedules for recurring triggers": the
first run is at startTime, or for one in the past at the next of the times that are counted from it. The
stand-in has recurrences by the second, minute, hour or day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.identity import identities
from cloudrec_sandbox.azure.services.logic import definitions, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Logic/workflows"
APIS = ("2019-05-01", "2016-06-01")

_STATES = ("Enabled", "Disabled")
_ASSIGN = f"{identities.TYPE}/assign/action"


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
        definitions.check(definition)
        named = _users(body)
        for identity in named:
            if identities.find(call.world, identity) is None:
                raise ArmError(
                    "FailedIdentityOperation",
                    f"Identity operation for resource '{call.path.text}' failed: the identity "
                    f"'{identity}' was not found.",
                )
        for name, step in definitions.steps(definition).items():
            inputs = step.action.get("inputs")
            used = (inputs.get("authentication") or {}) if step.action["type"] == "Http" and inputs else {}
            identity = str(used.get("identity") or "")
            if identity and identity.lower() not in {each.lower() for each in named}:
                raise ArmError(
                    "WorkflowManagedIdentityNotSpecified",
                    f"The action '{name}' uses the managed identity '{identity}', which the workflow "
                    "does not have.",
                )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in what Logic Apps adds, and plan the first run."""
        world = call.world
        resource.properties.setdefault("state", "Enabled")
        definition = resource.properties["definition"]
        definition |= {"parameters": definition.get("parameters", {}), "outputs": {}}
        for trigger in definition["triggers"].values():
            trigger["evaluatedRecurrence"] = dict(trigger["recurrence"])
        version = int(resource.facts.get("version", 0)) + 1
        resource.facts |= {"version": version, "anchor": (world.now(), world.client_now())}
        pause, due = _first(world, definition)
        world.after(pause, run, resource.id, version, due)

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the right to use each identity."""
        return [(_ASSIGN, identity) for identity in _users(body)]


def _users(body: Mapping[str, Any]) -> list[str]:
    """Return the ids of the user-assigned identities of a workflow."""
    return list(((body.get("identity") or {}).get("userAssignedIdentities") or {}).keys())


def _first(world: World, definition: Mapping[str, Any]) -> tuple[float, float]:
    """Return the virtual seconds until the first run, and its time by a client's clock."""
    found, now = definitions.recurrence(definition), world.client_now()
    if "startTime" not in found:
        return 0.0, now
    start = definitions.moment(found["startTime"])
    if start >= now:
        return world.until(start), start
    # A stand-in that runs faster than its clients' clocks repeats in its own time, as AKS's work takes it.
    period = definitions.period_s(definition)
    pause = (start - now) % period
    return pause, now + pause


def run(world: World, workflow: str, version: int, due: float) -> None:
    """Begin a run, and plan the next one. `due` is its time by a client's clock."""
    resource = store(world).find(workflow)
    if resource is None or resource.deleting or resource.facts.get("version") != version:
        return
    definition = resource.properties["definition"]
    recurrence = definitions.recurrence(definition)
    if "endTime" in recurrence and due > definitions.moment(recurrence["endTime"]):
        resource.facts.pop(runs.LAST, None)  # it costs nothing more
        return
    if resource.properties["state"] == "Enabled":
        runs.begin(world, resource)
    pause = definitions.period_s(definition)
    world.after(pause, run, workflow, version, due + pause)
