"""Server-side apply and field ownership."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors, fieldsets
from cloudrec_sandbox.kubernetes.objects.fieldsets import Tree, children

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.objects.schema import Node

APPLY, UPDATE = "Apply", "Update"
_NOT_OWNED = ("apiVersion", "kind")
_NOT_OWNED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


@dataclass(frozen=True, kw_only=True)
class Manager:
    """The manager of a change: its name, operation, API version, and the time."""

    name: str
    resource: Resource
    now: str
    operation: str = UPDATE
    subresource: str = ""

    def owns(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry of managedFields is this manager's."""
        mine = (self.name, self.operation, self.subresource)
        return mine == (entry["manager"], entry["operation"], entry.get("subresource", ""))


def ownable(obj: Mapping[str, Any], subresource: str = "") -> dict[str, Any]:
    """Return the part of an object that has owners."""
    if subresource == "status":
        return {"status": obj["status"]} if "status" in obj else {}
    kept = {name: value for name, value in obj.items() if name not in (*_NOT_OWNED, "status")}
    metadata = {
        name: value for name, value in (obj.get("metadata") or {}).items() if name not in _NOT_OWNED_METADATA
    }
    kept.pop("metadata", None)
    return {"metadata": metadata, **kept} if metadata else kept


def track(node: Node, manager: Manager, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    """Set the owners of what an ordinary write has changed, in the new object."""
    entries = [dict(each) for each in ((old or {}).get("metadata") or {}).get("managedFields") or ()]
    part = manager.subresource
    set_, gone = fieldsets.changed(node, ownable(old or {}, part), ownable(new, part))
    # A client takes over the fields that it changes, and a removed field has no owner left.
    if set_ or gone:
        touched = fieldsets.union(set_ or {}, gone or {})
        for entry in entries:
            lost = touched if not manager.owns(entry) else (gone or {})
            entry["fieldsV1"] = fieldsets.minus(entry["fieldsV1"], lost)
        _take(entries, manager, set_ or {})
    note(new, entries)


def _take(entries: list[dict[str, Any]], manager: Manager, more: Tree) -> None:
    mine = next((entry for entry in entries if manager.owns(entry)), None)
    if mine is None:
        entries.append(_entry(manager, more))
    else:
        mine |= {"fieldsV1": fieldsets.union(mine["fieldsV1"], more), "time": manager.now}


def _entry(manager: Manager, fields: Tree) -> dict[str, Any]:
    below = {"subresource": manager.subresource} if manager.subresource else {}
    return {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.resource.api_version,
        "time": manager.now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **below,
    }


def note(obj: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Set the object's managedFields."""
    # fieldmanager.sortEncodedManagedFields: by operation, time and name.
    kept = sorted(
        (entry for entry in entries if entry["fieldsV1"]),
        key=lambda entry: (entry["operation"], entry["time"], entry["manager"]),
    )
    obj["metadata"].pop("managedFields", None)
    if kept:
        obj["metadata"]["managedFields"] = kept


def applied(
    node: Node,
    manager: Manager,
    wish: Mapping[str, Any],
    live: Mapping[str, Any] | None,
    *,
    force: bool,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the object after `wish` is applied, and its new managedFields.

    Refused with 409 if it changes what others own, unless `force` is set.
    """
    entries = [dict(each) for each in ((live or {}).get("metadata") or {}).get("managedFields") or ()]
    mine = next((entry for entry in entries if manager.owns(entry)), None)
    others = [entry for entry in entries if entry is not mine]
    part = ownable(wish, manager.subresource)
    fields = fieldsets.owned(node, part)
    base = live if live is not None else {"metadata": {"name": wish["metadata"].get("name", "")}}
    result: dict[str, Any] = _merged(node, base, part)
    # Only changed values can conflict: several managers may own one field with the same value.
    set_, _ = fieldsets.changed(
        node, ownable(base, manager.subresource), ownable(result, manager.subresource)
    )
    _settle_conflicts(manager.resource, wish, others, set_ or {}, force=force)
    everybody: Tree = {}
    for entry in others:
        everybody = fieldsets.union(everybody, entry["fieldsV1"])
    # What this manager applied before and has now left out is removed, unless another manager owns it too.
    gone = fieldsets.minus(fieldsets.minus(mine["fieldsV1"] if mine else {}, fields), everybody)
    result = _without(node, result, gone, everybody)
    if mine is None:
        entries.append(_entry(manager, fields))
    elif mine["fieldsV1"] != fields:
        mine |= {"fieldsV1": fields, "time": manager.now}
    return result, entries


def _settle_conflicts(
    resource: Resource,
    wish: Mapping[str, Any],
    others: list[dict[str, Any]],
    set_: Tree,
    *,
    force: bool,
) -> None:
    causes = []
    for entry in others:
        both = fieldsets.overlap(set_, entry["fieldsV1"])
        if force:
            entry["fieldsV1"] = fieldsets.minus(entry["fieldsV1"], both)
            continue
        causes += [
            errors.cause(path, f'conflict with "{entry["manager"]}"{_using(entry)}', "FieldManagerConflict")
            for path in fieldsets.paths(both)
        ]
    if causes:
        raise _conflict(resource, str(wish["metadata"].get("name", "")), causes)


def _using(entry: Mapping[str, Any]) -> str:
    return f" using {entry['apiVersion']}" if entry["operation"] == UPDATE else ""


def _conflict(resource: Resource, name: str, causes: list[dict[str, str]]) -> errors.ApiError:
    count = len(causes)
    listed = (
        ": ".join((causes[0]["message"], causes[0]["field"]))
        if count == 1
        else ("conflicts:\n" + "\n".join(f"- {each['message']}: {each['field']}" for each in causes))
    )
    return errors.ApiError(
        HTTPStatus.CONFLICT,
        "Conflict",
        f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {listed}",
        details={"name": name, "group": resource.group, "kind": resource.plural, "causes": causes},
    )


def _merged(node: Node, live: Any, wish: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the live value with the wish merged over it, part by part."""
    before, after = children(node, live), children(node, wish)
    if before is None or after is None or type(live) is not type(wish):
        return wish
    if isinstance(wish, dict):
        return {
            **live,
            **{
                name: _merged(node.child(name), live[name], each) if name in live else each
                for name, each in wish.items()
            },
        }
    asked = {name: each for name, _, each in after}
    result = [
        _merged(node.items, each, asked.pop(name)) if name in asked else each for name, _, each in before
    ]
    return [*result, *asked.values()]


def _without(node: Node, value: Any, gone: Tree, others: Tree) -> Any:  # noqa: ANN401 - JSON
    """Return the value without what its owner no longer applies and no other manager owns."""
    parts = children(node, value)
    if not gone or parts is None:
        return value
    kept: list[tuple[str, Any]] = []
    for name, below, each in parts:
        if name not in gone:
            kept.append((name, each))
            continue
        tree, theirs = gone[name], others.get(name, {})
        if not tree or ("." in tree and not theirs):
            continue
        rest = _without(below, each, tree, theirs)
        if rest or name.startswith("k:"):
            kept.append((name, rest))
    if isinstance(value, dict):
        return {name.removeprefix("f:"): each for name, each in kept}
    return [each for _, each in kept]
