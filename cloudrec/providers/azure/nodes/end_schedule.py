"""The end of a cluster, kept by Azure: a workflow of Logic Apps deletes the pools of GPU nodes then.

The workflow exists before the first GPU node, and needs neither an image nor the Kubernetes API, nor a
machine of the user: a cluster whose `up` was killed ends too. The guard in the cluster is the second line.
From the end on, the workflow asks AKS again and again to delete each pool that `up` may have created: AKS
refuses a deletion while it changes the cluster, and an HTTP action repeats no call that was refused with 409
(the retry policies of Logic Apps are for 408, 429 and 5xx). A deletion needs no description of the pool and
no right on its subnet, unlike a change of its size; `up` creates the pool again. An Automation account would
need a runbook with code, and a stop of the cluster would stop its other nodes too.

The end of a budget is a tag of the workflow, which the guard moves (`end_workflow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, plain
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver
from cloudrec.providers.azure.api.untyped import Provisioned, UntypedCalls, properties_of
from cloudrec.providers.azure.identity.identity import END as END_IDENTITY
from cloudrec.providers.azure.identity.identity import IDENTITY, IDENTITY_TYPE, WORKFLOW_TYPE, workflow_id
from cloudrec.providers.azure.nodes import end_workflow
from cloudrec.providers.azure.prices import LOGIC_EXECUTION
from cloudrec.providers.base.driver import all_needed
from cloudrec.providers.base.protocol import END_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.engine.graph import Condition, Difference, Observed, Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.prices import Prices

END = END_SCHEDULE
TAG_FORM, MOVABLE = "cloudrec-end", "movable"  # a tag of workflows whose end can move

_TYPE, _VERSION = WORKFLOW_TYPE, "2019-05-01"
_ASKED = ("$schema", "contentVersion", "parameters", "triggers", "actions")  # the parts of a definition


@dataclass(frozen=True, kw_only=True)
class AzureEndProperties(LocatedProperties):
    """The requested properties of the workflow that ends a cluster.

    Attributes:
        expires: the end, in the workflow's tag.
        state: whether it runs: Enabled.
        definition: the workflow, in the Workflow Definition Language.
    """

    expires: str
    state: str
    definition: Mapping[str, object]


class AzureEndDriver(TrackedDriver["models.resources.GenericResource", AzureEndProperties]):
    """Handles the workflows that end clusters, by the API for resources of any type."""

    kind = END
    charge = BY_USE
    of_type = _TYPE
    repairs = True
    changeable = frozenset({"expires", "state", "definition"})

    @property
    def calls(self) -> TrackedCalls[models.resources.GenericResource]:
        """The client's methods for this kind."""
        return UntypedCalls(azure=self.azure, of_type=_TYPE, version=_VERSION).tracked

    def put(self, resource: Resource[AzureEndProperties], identities: Mapping[str, str]) -> str:
        """Put the workflow, with the calls for pools that were candidates once: such a pool may exist."""
        group, name = group_name(resource.tags[TAG_CLUSTER]), self.named(resource)
        row = self.azure.get(self.calls.get, group, name)
        wanted = resource.properties
        kept = end_workflow.deletions(self.properties(row).get("definition")) if row is not None else {}
        calls = {**kept, **end_workflow.deletions(wanted.definition)}
        merged = replace(wanted, definition=end_workflow.with_deletions(wanted.definition, calls))
        return super().put(replace(resource, properties=merged), identities)

    def complete(
        self, resource: Resource[AzureEndProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Put the workflow as it is requested."""
        if self.difference_of(resource, identity):
            self.put(resource, identities)

    def difference_of(self, resource: Resource[AzureEndProperties], identity: str) -> bool:
        """Return whether the workflow that exists differs from the requested one."""
        row = self.row(identity)
        there, wanted = _comparable(self.properties(row), resource.properties), resource.properties
        return {name: there.get(name) for name in self.changeable} != {
            name: getattr(wanted, name) for name in self.changeable
        }

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
        return super().state(Provisioned(properties_of(row).get("provisioningState")))  # type: ignore[arg-type]

    def properties(self, row: models.resources.GenericResource) -> Mapping[str, Any]:
        """Return the end, the state and the definition; nothing of a row of a list."""
        found = properties_of(row)
        if "definition" not in found:
            return {}
        there = found["definition"]
        # Logic Apps adds empty parameters and outputs, and to a trigger what it makes of the recurrence.
        kept = {name: there.get(name) for name in _ASKED} | {"parameters": there.get("parameters") or {}}
        kept["triggers"] = {
            name: {key: value for key, value in trigger.items() if key != "evaluatedRecurrence"}
            for name, trigger in (there.get("triggers") or {}).items()
        }
        expires = (row.tags or {}).get(TAG_EXPIRES, "")
        return {"expires": expires, "state": plain(found.get("state")), "definition": kept}

    def hourly_usd(self, row: models.resources.GenericResource) -> float | None:
        """Return what the reads of the end cost in USD an hour; None if unknown."""
        is_read = (row.tags or {}).get(TAG_FORM) == MOVABLE
        return price(self.azure.prices_at(row.location)) if is_read else BY_USE

    def difference(self, resource: Resource[AzureEndProperties], observed: Observed) -> Difference | None:
        """Compare the properties; calls for further pools agree. The reason names the ends only."""
        wanted = resource.properties
        properties = _comparable(observed.properties, wanted)
        found = super().difference(resource, replace(observed, properties=properties))
        if found is None or "definition" not in observed.properties:
            return found
        state, there = (
            properties["state"],
            end_workflow.start(properties["definition"]) or properties["expires"],
        )
        reason = f"it is {state} and ends the nodes at {there}, not at {wanted.expires}"
        is_end = there != (end_workflow.start(wanted.definition) or wanted.expires)
        return replace(found, reason=reason if is_end else f"it is {state}, or its calls differ")


def end_of(
    layout: AzureLayout, cluster: str, pools: Iterable[str], *, needs: tuple[str, ...]
) -> Resource[AzureEndProperties]:
    """Return the workflow that ends a cluster.

    Args:
        layout: the cluster's, which has an end.
        cluster: the id of the AKS cluster.
        pools: the names of the pools of GPU nodes that may exist.
        needs: the keys of the resources that it needs.
    """
    expires, can_move = layout.cluster.expires or "", layout.cluster.has_movable_end
    identity = ids.resource(layout.subscription, layout.group, IDENTITY_TYPE, f"{layout.name}-{END_IDENTITY}")
    calls = end_workflow.EndCalls(arm=layout.arm, cluster=cluster, pools=tuple(pools), identity=identity)
    if can_move:
        own, limit = workflow_id(layout), layout.cluster.end_limit
        definition = end_workflow.movable(calls, workflow=own, expires=expires, limit=limit)
    else:
        definition = end_workflow.fixed(calls, expires=expires)
    return layout.resource(
        END,
        needs=needs,
        properties=AzureEndProperties(
            location=layout.region, expires=expires, state="Enabled", definition=definition
        ),
        hourly_usd=price(layout.prices) if can_move else BY_USE,
        tags={TAG_FORM: MOVABLE} if can_move else {},
    )


def price(prices: Prices) -> float | None:
    """Return what a workflow costs that reads its end, in USD an hour until then; None if unknown."""
    return prices.executed(LOGIC_EXECUTION, end_workflow.EXECUTIONS_H)


def move(azure: Azure, title: str, expires: str) -> None:
    """Move the end in the workflow's tag, with the guard's few permissions.

    Raises:
        azure.core.exceptions.AzureError: Azure refuses, or there is no workflow.
    """
    name = group_name(title)
    own = ids.resource(azure.subscription, name, _TYPE, name)
    tags = models.resources.Tags(tags={TAG_EXPIRES: expires})
    patch = models.resources.TagsPatchResource(operation="Merge", properties=tags)
    # The guard may not read an operation, and needs none: it moves the end again if this has no effect.
    azure.resources.tags.begin_update_at_scope(own, patch, polling=False)


def _comparable(there: Mapping[str, Any], wanted: AzureEndProperties) -> dict[str, Any]:
    """Return observed properties without what needs no change.

    This is calls for further pools; and, if the tag has the requested end, the definition's own end for the
    case that the tag cannot be read, since the guard moves the tag alone.
    """
    definition = there.get("definition")
    if not isinstance(definition, Mapping):
        return dict(there)
    asked = end_workflow.deletions(wanted.definition)
    kept = {name: each for name, each in end_workflow.deletions(definition).items() if name in asked}
    definition = end_workflow.with_deletions(definition, kept)
    if there.get("expires") == wanted.expires:
        definition = end_workflow.with_end(definition, wanted.definition)
    return {**there, "definition": definition}
