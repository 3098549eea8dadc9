"""Resource groups: a deletion removes everything in the group, in any possible order, or rolls back.

Durations: resource-group (the least that a deletion takes), resource-group-blocked (until it rolls back).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure import crud, rules
from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError, group_not_found, malformed
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.odata import FilterError, parse
from cloudrec_sandbox.azure.arm.pages import page
from cloudrec_sandbox.azure.arm.registry import durations, kinds, resource, route
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.lag import GROUPS, lag
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Resources/resourceGroups"
_APIS = ("2025-04-01", "2024-11-01", "2022-09-01", "2021-04-01")
_STEP_S = 5
_COMPARED = re.compile(r"([\w/]+)\s+(?:eq|ne)\s")
_PAGE = 1000
_TAG = ("tagName", "tagValue")

durations({"resource-group": 15, "resource-group-blocked": 600})


@resource
class ResourceGroups(Kind):
    """A group."""

    type = TYPE
    apis = _APIS
    model = "azure.mgmt.resource.resources.models:ResourceGroup"
    patch_model = "azure.mgmt.resource.resources.models:ResourceGroupPatchable"
    name_rule = r"[\w.()-]{1,90}"
    needs_group = False
    delete_time = "resource-group"
    polled_by: ClassVar[Sequence[str]] = ("location",)
    retry_after = 15

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the error for a change in a group that is being deleted."""
        return ArmError(
            "ResourceGroupBeingDeleted",
            f"The resource group '{resource.name}' is in deprovisioning state and cannot perform this "
            f"operation.",
            status=HTTPStatus.CONFLICT,
        )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Refuse a change of managedBy."""
        if old is not None and old.get("managedBy") != body.get("managedBy"):
            raise ArmError("ResourceGroupManagedByMismatch", "managedBy cannot be changed.")

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document: groups have no etag."""
        return dict(resource.document)

    def missing(self, path: Path) -> ArmError:
        """Return the group's own error code."""
        return group_not_found(path.name)

    def schedule_delete(self, world: World, resource: Resource, operation: Operation) -> None:
        """Delete step by step."""
        operation.facts["progress"] = world.now()
        world.after(min(_STEP_S, world.duration("resource-group")), step, operation.id)


def step(world: World, id_: str) -> None:
    """Begin to delete what can be deleted by now; repeat until all is gone or nothing more can be deleted."""
    operation = operations.find(world, id_)
    group = store(world).find(operation.about) if operation else None
    if operation is None or group is None:
        return
    left = [each for each in store(world).below(group.id) if len(each.path.types) == 1]
    blocked: dict[str, ArmError] = {}
    for each in left:
        if refusal := _let_go(world, each, operation):
            blocked[each.id] = refusal
    if left and len(blocked) < len(left):
        operation.facts["progress"] = world.now()
    elapsed = world.now() - operation.started_at
    if not store(world).below(group.id) and elapsed >= world.duration("resource-group"):
        operations.remove(world, group)
        operations.conclude(world, operation)
    elif blocked and world.now() - operation.facts["progress"] >= world.duration("resource-group-blocked"):
        _roll_back(world, group, operation, blocked)
    else:
        world.after(_STEP_S, step, id_)


def _let_go(world: World, each: Resource, deletion: Operation) -> ArmError | None:
    """Begin to delete one resource; return the refusal, if any."""
    if each.deleting:
        return None
    kind = kinds[each.type.lower()]
    running = operations.find(world, each.busy) if each.busy else None
    # It is in another operation, which may end by itself: the next step tries again.
    if running is not None and not running.is_over and not kind.interrupt(world, each, running):
        return None
    try:
        kind.check_delete(world, each)
    except ArmError as error:
        return error
    crud.begin_delete(world, kind, each)
    deletion.facts["progress"] = world.now()
    return None


def _roll_back(world: World, group: Resource, operation: Operation, blocked: dict[str, ArmError]) -> None:
    group.deleting = False
    kinds[TYPE.lower()].mark(group, operations.SUCCEEDED)
    message = (
        f"Deletion of resource group '{group.name}' did not finish within the allowed time as resources with "
        f"identifiers '{', '.join(blocked)}' could not be deleted. The provisioning state of the resource "
        f"group will "
        "be rolled back. Please check audit logs for more details."
    )
    details = [{**error.document(), "target": name} for name, error in blocked.items()]
    refusal = ArmError(
        "ResourceGroupDeletionBlocked", message, status=HTTPStatus.CONFLICT, more={"details": details}
    )
    operations.conclude(world, operation, refusal)


def is_visible(world: World, group: Resource) -> bool:
    """Return whether all of ARM sees a group by now."""
    return world.now() - group.made_at >= lag(world, GROUPS)


@route("GET", TYPE)
def read(call: Call) -> Reply:
    """Return one group, or those that match a filter by one tag."""
    rules.check_version(call, TYPE, _APIS)
    if call.path.is_item:
        group = store(call.world).find(call.path.text)
        if group is None or not is_visible(call.world, group):
            raise group_not_found(call.path.name)
        return json_reply(group.document)
    rows = [
        group.document
        for group in store(call.world).of_type(TYPE, under=call.path.scope)
        if is_visible(call.world, group) and tagged_as(call.query.get("$filter", ""), group.document)
    ]
    return page(call, rows, int(call.query.get("$top", _PAGE)))


@route("HEAD", TYPE)
def head(call: Call) -> Reply:
    """Return whether a group exists."""
    group = store(call.world).find(call.path.text)
    there = group is not None and is_visible(call.world, group)
    return Reply(status=HTTPStatus.NO_CONTENT if there else HTTPStatus.NOT_FOUND)


def tagged_as(
    text: str,
    document: dict[str, Any],
    *,
    fields: Collection[str] | None = None,
    functions: Mapping[str, Callable[..., bool]] | None = None,
) -> bool:
    """Return whether a document matches a filter, which may name one tag by tagName and tagValue.

    `fields`: those that the list can be filtered by, beside tags; None for any. `functions`: its own.
    """
    if not text:
        return True
    try:
        test = parse(text, functions=functions, names=None if fields is None else (*fields, *_TAG))
    except FilterError as error:
        raise malformed("InvalidFilterInQueryString", [str(error)]) from error
    names = {name.lower() for name in _COMPARED.findall(text)}
    if "tagname" not in names:
        return test(document)
    if others := sorted(names - {name.lower() for name in _TAG}):
        raise malformed(
            "InvalidFilterInQueryString", [f"tags cannot be filtered by together with {', '.join(others)}"]
        )
    tags = document.get("tags") or {}
    return any(test({**document, "tagName": name, "tagValue": value}) for name, value in tags.items())
