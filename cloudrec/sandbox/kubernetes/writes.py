"""Create, update, patch and delete, as they come over HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.http import json_reply
from cloudrec.sandbox.kubernetes import apply, applying, bodies, errors, merge, patches, reads
from cloudrec.sandbox.kubernetes.lifecycle import FOREGROUND, ORPHAN
from cloudrec.sandbox.kubernetes.store import BACKGROUND
from cloudrec.sandbox.kubernetes.table import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.sandbox.http import Reply
    from cloudrec.sandbox.kubernetes.call import Call

_APPLY = "application/apply-patch+yaml"
_ORPHANING = ("jobs", "cronjobs")  # whose dependents the API leaves where nobody says otherwise


def create(call: Call) -> Reply:
    """A new object."""
    new = bodies.decoded(call, bodies.checked(call, call.object))
    made = call.store.create(call.resource.key, new, dry_run=call.dry_run, track=_tracker(call))
    return bodies.shown(call, made, HTTPStatus.CREATED)


def update(call: Call) -> Reply:
    """The whole object, or its status, anew."""
    reads.existing(call)
    new = bodies.checked(call, call.object)
    _check_name(call, new)
    if call.resource.custom and not new["metadata"].get("resourceVersion"):
        blame = errors.cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise errors.invalid(call.resource.kind, call.resource.group, call.target.name, [blame])
    return _updated(call, new)


def _updated(call: Call, new: dict[str, Any]) -> Reply:
    changed = call.store.update(
        call.resource.key,
        bodies.decoded(call, new),
        call.target.subresource,
        dry_run=call.dry_run,
        track=_tracker(call),
    )
    return bodies.shown(call, changed)


def _tracker(call: Call) -> Callable[[dict[str, Any], Mapping[str, Any] | None], None]:
    manager = apply.Manager(
        name=call.manager,
        resource=call.resource,
        now=call.store.timestamp(),
        subresource=call.target.subresource,
    )
    return lambda new, old: apply.track(call.node, manager, new, old)


def _check_name(call: Call, obj: dict[str, Any]) -> None:
    name = obj["metadata"].setdefault("name", call.target.name)
    if name != call.target.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )


def patch(call: Call) -> Reply:
    """A change told as a patch, of the kind that its media type names."""
    if call.content_type == _APPLY:
        return applying.answer(call)
    old = copied(reads.existing(call).obj)
    new = _patched(call, old)
    _check_name(call, bodies.checked(call, new))
    return _updated(call, new)


def _patched(call: Call, old: dict[str, Any]) -> dict[str, Any]:
    new: Any = None
    if call.content_type == "application/merge-patch+json":
        new = merge.merged(old, call.object)
    elif call.content_type == "application/json-patch+json":
        new = patches.json_patch(old, call.body)
    elif call.content_type == "application/strategic-merge-patch+json" and not call.resource.custom:
        new = patches.strategic(call.node, old, call.object)
    if not isinstance(new, dict):
        raise errors.ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format ({call.content_type}) - accepted media types "
            "include: application/json-patch+json, application/merge-patch+json, "
            "application/apply-patch+yaml",
        )
    return new


def delete(call: Call) -> Reply:
    """An object's end, or its beginning."""
    entry = reads.existing(call)
    left = _deleted(call, entry.obj)
    if "deletionTimestamp" in left["metadata"]:
        return bodies.shown(call, left)
    return json_reply(_gone(call, entry.obj))


def delete_collection(call: Call) -> Reply:
    """The end of all that the selectors mean."""
    entries = reads.selected(call)
    for entry in entries:
        _deleted(call, entry.obj)
    return reads.list_of(call.resource, entries, call.store.table.version)


def _deleted(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    wish = {**(call.body or {})}
    grace = wish.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
    return call.store.delete(
        call.resource.key,
        obj["metadata"].get("namespace"),
        obj["metadata"]["name"],
        None if grace is None else int(grace),
        propagation=_propagation(call, wish),
        preconditions=wish.get("preconditions"),
        dry_run=call.dry_run or wish.get("dryRun") == ["All"],
    )


def _propagation(call: Call, wish: dict[str, Any]) -> str:
    usual = ORPHAN if call.resource.key in _ORPHANING else BACKGROUND
    asked = wish.get("propagationPolicy") or call.query.get("propagationPolicy")
    if asked is None and wish.get("orphanDependents") is not None:
        asked = ORPHAN if wish["orphanDependents"] else BACKGROUND
    if asked not in (None, BACKGROUND, FOREGROUND, ORPHAN):
        blame = errors.cause(
            "propagationPolicy",
            f'Unsupported value: "{asked}": supported values: "Foreground", "Background", "Orphan"',
        )
        raise errors.invalid("DeleteOptions", "meta.k8s.io", "", [blame])
    return asked or usual


def _gone(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    details = {"name": metadata["name"], "kind": call.resource.plural, "uid": metadata["uid"]}
    if call.resource.group:
        details["group"] = call.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
