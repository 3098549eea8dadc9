"""Lists of all resources of a group or the subscription, from an index that may be old."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm.errors import group_not_found
from cloudrec_sandbox.azure.arm.pages import page
from cloudrec_sandbox.azure.arm.registry import Entry, forgotten, inventory, kinds, route
from cloudrec_sandbox.azure.arm.store import Store, store
from cloudrec_sandbox.azure.services.lag import RESOURCES, lag
from cloudrec_sandbox.azure.services.resource_groups import TYPE, tagged_as
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.core.world import World

_PAGE = 1000
_TIMES = ("createdTime", "changedTime", "provisioningState")  # shown only if $expand names them
# What the list can be filtered by, with eq and ne (REST API: Resources - List).
_FIELDS = (
    "location",
    "resourceType",
    "name",
    "resourceGroup",
    "identity",
    "identity/principalId",
    *(f"plan{member}" for member in ("", "/publisher", "/product", "/name", "/version", "/promotionCode")),
)
_FUNCTIONS = {"substringof": lambda document, part, name: part.lower() in str(document.get(name)).lower()}
_SHOWN = ("id", "name", "type", "location", "tags", "sku", "kind", "identity", "zones", "managedBy")


@dataclass
class Gone:
    """Rows of deleted resources, with the moment of their deletion."""

    rows: list[tuple[float, dict[str, Any]]] = field(default_factory=list)


@forgotten
def note(world: World, resource: Resource) -> None:
    """Keep the row: the index may still show it."""
    if _is_tracked(resource):
        world.state(Gone).rows.append((world.now(), _row(resource)))


@route("GET", "Microsoft.Resources/resources")
def listing(call: Call) -> Reply:
    """Return the rows of the index."""
    rules.check_version(call, "Microsoft.Resources/resources", ())
    world, scope = call.world, call.path.scope
    if call.path.group and store(world).find(scope) is None:
        raise group_not_found(call.path.group)
    behind = lag(world, RESOURCES)
    rows = [
        _row(each)
        for each in store(world).resources.values()
        if _is_tracked(each) and world.now() - each.made_at >= behind
    ]
    there = {row["id"].lower() for row in rows}
    ghosts = [row for gone_at, row in world.state(Gone).rows if world.now() - gone_at < behind]
    rows += [row for row in ghosts if row["id"].lower() not in there]
    prefix, text = f"{scope.lower()}/", call.query.get("$filter", "")
    _matches({}, text)  # refuses an invalid filter, also where there are no rows
    found = [row for row in rows if row["id"].lower().startswith(prefix) and _fits(row, text)]
    hidden = set(_TIMES) - {name.strip() for name in call.query.get("$expand", "").split(",")}
    if "tagvalue" in text.lower():
        hidden.add("tags")  # ARM leaves out the tags if the filter is by tag
    shown = [{name: value for name, value in row.items() if name not in hidden} for row in found]
    return page(call, shown, int(call.query.get("$top", _PAGE)))


def _is_tracked(resource: Resource) -> bool:
    kind = kinds[resource.type.lower()]
    return kind.is_tracked and kind.is_located and resource.type != TYPE and len(resource.path.types) == 1


def _row(resource: Resource) -> dict[str, Any]:
    row = {name: resource.document[name] for name in _SHOWN if resource.document.get(name) is not None}
    return row | {
        "createdTime": as_datetime(resource.made_at).isoformat(),
        "changedTime": as_datetime(resource.changed_at).isoformat(),
        "provisioningState": resource.properties.get("provisioningState"),
    }


def _fits(row: dict[str, Any], text: str) -> bool:
    document = {**row, "resourceType": row["type"], "resourceGroup": row["id"].split("/")[4]}
    return _matches(document, text)


def _matches(document: dict[str, Any], text: str) -> bool:
    return tagged_as(text, document, fields=_FIELDS, functions=_FUNCTIONS)


@inventory
def existing(world: World) -> Iterator[Entry]:
    """Yield all resources of all registered types."""
    for each in world.state(Store).resources.values():
        kind = kinds[each.type.lower()]
        if kind.is_shown:
            namespace, _, types = kind.type.partition("/")
            yield Entry(namespace.rpartition(".")[2].lower(), types, each.id, pending=each.deleting)
