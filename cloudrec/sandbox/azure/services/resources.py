"""Lists of all resources of a group or the subscription, from an index that may be old."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.azure import rules
from cloudrec.sandbox.azure.errors import group_not_found
from cloudrec.sandbox.azure.pages import page
from cloudrec.sandbox.azure.registry import Entry, forgotten, inventory, kinds, route
from cloudrec.sandbox.azure.services.lag import RESOURCES, lag
from cloudrec.sandbox.azure.services.resource_groups import TYPE, tagged_as
from cloudrec.sandbox.azure.store import Store, store
from cloudrec.sandbox.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.http import Reply
    from cloudrec.sandbox.world import World

_PAGE = 1000
_TIMES = ("createdTime", "changedTime", "provisioningState")  # told to who asks for them
_SHOWN = ("id", "name", "type", "location", "tags", "sku", "kind", "identity", "zones", "managedBy")


@dataclass
class Gone:
    """Rows of what is gone, with the moment of it."""

    rows: list[tuple[float, dict[str, Any]]] = field(default_factory=list)


@forgotten
def note(world: World, resource: Resource) -> None:
    """Keep the row: the index may still show it."""
    if _is_tracked(resource):
        world.state(Gone).rows.append((world.now(), _row(resource)))


@route("GET", "Microsoft.Resources/resources")
def listing(call: Call) -> Reply:
    """What the index has."""
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
    found = [
        row for row in rows if row["id"].lower().startswith(prefix) and tagged_as(text, _for_filter(row))
    ]
    hidden = set(_TIMES) - {name.strip() for name in call.query.get("$expand", "").split(",")}
    if "tagvalue" in text.lower():
        hidden.add("tags")  # who asks by tag is not told the tags
    told = [{name: value for name, value in row.items() if name not in hidden} for row in found]
    return page(call, told, int(call.query.get("$top", _PAGE)))


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


def _for_filter(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "resourceType": row["type"], "resourceGroup": row["id"].split("/")[4]}


@inventory
def existing(world: World) -> Iterator[Entry]:
    """All resources of all registered types."""
    for each in world.state(Store).resources.values():
        kind = kinds[each.type.lower()]
        if kind.is_shown:
            namespace, _, types = kind.type.partition("/")
            yield Entry(namespace.rpartition(".")[2].lower(), types, each.id, pending=each.deleting)
