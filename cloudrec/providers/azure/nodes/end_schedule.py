"""The end of a cluster, kept by Azure: a workflow of Logic Apps deletes the pools of GPU nodes then.

The workflow exists before the first GPU node, and needs neither an image nor the Kubernetes API, nor a
machine of the user: a cluster whose `up` was killed ends too. The guard in the cluster is the second line.
From the end on, the workflow asks AKS each minute for a day to delete each pool that `up` may have created:
AKS refuses a deletion while it changes the cluster, and an HTTP action repeats no call that was refused with
409 (the retry policies of Logic Apps are for 408, 429 and 5xx). A deletion needs no description of the pool
and no right on its subnet, unlike a change of its size; `up` creates the pool again. An Automation account
would need a runbook with code, and a stop of the cluster would stop its other nodes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, plain
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver
from cloudrec.providers.azure.identity.identity import IDENTITY
from cloudrec.providers.base.driver import all_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.engine.graph import Condition, Difference, Observed, Resource
    from cloudrec.providers.azure.api.client import Azure

END = "end-schedule"

_TYPE, _VERSION = "Microsoft.Logic/workflows", "2019-05-01"
_POOLS_VERSION = "2025-10-01"  # of AKS's API, for the calls of the workflow
_SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
_ASKED = ("$schema", "contentVersion", "triggers", "actions")  # the parts of a definition
_TRIGGER = "end"
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class AzureEndProperties(LocatedProperties):
    """The requested properties of the workflow that ends a cluster.

    Attributes:
        state: whether it runs: Enabled.
        definition: the workflow, in the Workflow Definition Language.
    """

    state: str
    definition: Mapping[str, object]


def definition(
    *, arm: str, cluster: str, pools: Iterable[str], identity: str, expires: str
) -> dict[str, Any]:
    """Return the workflow.

    Args:
        arm: the URL of Azure Resource Manager.
        cluster: the id of the AKS cluster.
        pools: the names of the pools of GPU nodes that may exist.
        identity: the id of the identity that deletes them.
        expires: the end, ISO 8601.
    """
    end = datetime.fromisoformat(expires).astimezone(UTC)
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "triggers": {
            _TRIGGER: {
                "type": "Recurrence",
                "recurrence": {
                    "frequency": "Minute",
                    "interval": 1,
                    "startTime": f"{end:%Y-%m-%dT%H:%M:%SZ}",
                    "endTime": f"{end + _DAY:%Y-%m-%dT%H:%M:%SZ}",
                },
            }
        },
        # Without `runAfter` the actions run side by side, and a refusal of one does not stop the others.
        "actions": {f"delete_{pool}": _deletion(arm, cluster, pool, identity) for pool in sorted(pools)},
    }


def _deletion(arm: str, cluster: str, pool: str, identity: str) -> dict[str, object]:
    query = f"api-version={_POOLS_VERSION}&ignore-pod-disruption-budget=true"
    return {
        "type": "Http",
        "runAfter": {},
        "operationOptions": "DisableAsyncPattern",  # the identity may not read the operation
        "inputs": {
            "method": "DELETE",
            "uri": f"{arm}{cluster}/agentPools/{pool}?{query}",
            "authentication": {
                "type": "ManagedServiceIdentity",
                "identity": identity,
                "audience": f"{arm}/",
            },
        },
    }


class AzureEndDriver(TrackedDriver["models.resources.GenericResource", AzureEndProperties]):
    """Handles the workflows that end clusters, by the API for resources of any type."""

    kind = END
    charge = BY_USE
    of_type = _TYPE
    repairs = True
    changeable = frozenset({"state", "definition"})

    @property
    def calls(self) -> TrackedCalls[models.resources.GenericResource]:
        """The client's methods for this kind."""
        return TrackedCalls(
            list=partial(_listed, self.azure),
            get=partial(_read, self.azure),
            put=partial(_put, self.azure),
            delete=partial(_delete, self.azure),
        )

    def put(self, resource: Resource[AzureEndProperties], identities: Mapping[str, str]) -> str:
        """Put the workflow, with the calls for pools that were candidates once: such a pool may exist."""
        group, name = group_name(resource.tags[TAG_CLUSTER]), self.named(resource)
        row = self.azure.get(self.calls.get, group, name)
        wanted = resource.properties
        kept = _actions(self.properties(row).get("definition")) if row is not None else {}
        definition = {**wanted.definition, "actions": {**kept, **_actions(wanted.definition)}}
        merged = replace(wanted, definition=definition)
        return super().put(replace(resource, properties=merged), identities)

    def complete(
        self, resource: Resource[AzureEndProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Put the workflow as it is requested."""
        if self.difference_of(resource, identity):
            self.put(resource, identities)

    def difference_of(self, resource: Resource[AzureEndProperties], identity: str) -> bool:
        """Return whether the workflow that exists differs from the requested one."""
        there = self.properties(self.row(identity))
        wanted = resource.properties
        return (there.get("state"), _common(there.get("definition"), wanted.definition)) != (
            wanted.state,
            wanted.definition,
        )

    def body(
        self, resource: Resource[AzureEndProperties], identities: Mapping[str, str]
    ) -> models.resources.GenericResource:
        """Return the SDK's model of the workflow."""
        wanted = resource.properties
        identity = all_needed(resource, identities, IDENTITY)[0]
        return models.resources.GenericResource(
            location=wanted.location,
            tags=dict(resource.tags),
            identity=models.resources.Identity(
                type="UserAssigned",
                user_assigned_identities={identity: models.resources.IdentityUserAssignedIdentitiesValue()},
            ),
            properties={"state": wanted.state, "definition": wanted.definition},
        )

    def state(self, row: models.resources.GenericResource) -> tuple[Condition, str]:
        """Return the condition; a list shows none, and a workflow is created within the call."""
        return super().state(_Provisioned(_properties(row).get("provisioningState")))  # type: ignore[arg-type]

    def properties(self, row: models.resources.GenericResource) -> Mapping[str, Any]:
        """Return the state and the definition; nothing of a row of a list."""
        found = _properties(row)
        if "definition" not in found:
            return {}
        there = found["definition"]
        # Logic Apps adds empty parameters and outputs, and to a trigger what it makes of the recurrence.
        kept = {name: there.get(name) for name in _ASKED}
        kept["triggers"] = {
            name: {key: value for key, value in trigger.items() if key != "evaluatedRecurrence"}
            for name, trigger in (there.get("triggers") or {}).items()
        }
        return {"state": plain(found.get("state")), "definition": kept}

    def difference(self, resource: Resource[AzureEndProperties], observed: Observed) -> Difference | None:
        """Compare the properties; calls for further pools agree. The reason names the ends only."""
        properties = dict(observed.properties)
        if "definition" in properties:
            properties["definition"] = _common(properties["definition"], resource.properties.definition)
        found = super().difference(resource, replace(observed, properties=properties))
        if found is None or "definition" not in observed.properties:
            return found
        there, wanted = (
            _start(each) for each in (observed.properties["definition"], resource.properties.definition)
        )
        state = observed.properties.get("state")
        reason = f"it is {state} and ends the nodes at {there}, not at {wanted}"
        return replace(found, reason=reason if there != wanted else f"it is {state}, or its calls differ")


def _actions(of: Any) -> dict[str, Any]:  # noqa: ANN401 - a definition that others may have changed
    found = of.get("actions") if isinstance(of, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _common(there: Any, wanted: Mapping[str, object]) -> Any:  # noqa: ANN401 - likewise
    """Return a definition without the calls that are not requested."""
    if not isinstance(there, Mapping):
        return there
    asked = _actions(wanted)
    return {**there, "actions": {name: each for name, each in _actions(there).items() if name in asked}}


def _start(of: Any) -> str:  # noqa: ANN401 - a definition that others may have changed
    """Return when a workflow begins; empty if that cannot be read."""
    try:
        return str(of["triggers"][_TRIGGER]["recurrence"]["startTime"])
    except (KeyError, TypeError):
        return ""


@dataclass(frozen=True)
class _Provisioned:
    provisioning_state: object


def _properties(row: models.resources.GenericResource) -> Mapping[str, Any]:
    found: object = row.properties
    return found if isinstance(found, Mapping) else {}


def _listed(azure: Azure, group: str) -> Iterable[models.resources.GenericResource]:
    return azure.resources.resources.list_by_resource_group(group, filter=f"resourceType eq '{_TYPE}'")


def _id(azure: Azure, group: str, name: str) -> str:
    return ids.resource(azure.subscription, group, _TYPE, name)


def _read(azure: Azure, group: str, name: str) -> models.resources.GenericResource:
    return azure.resources.resources.get_by_id(_id(azure, group, name), api_version=_VERSION)


def _put(azure: Azure, group: str, name: str, row: models.resources.GenericResource, **more: Any) -> object:  # noqa: ANN401
    return azure.resources.resources.begin_create_or_update_by_id(
        _id(azure, group, name), row, api_version=_VERSION, **more
    )


def _delete(azure: Azure, group: str, name: str, **more: Any) -> object:  # noqa: ANN401 - the SDK's own
    return azure.resources.resources.begin_delete_by_id(_id(azure, group, name), api_version=_VERSION, **more)
