"""Create, update, patch and delete, as they come over HTTP."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.http import Reply, json_reply
from cloudrec.sandbox.kubernetes import errors, merge, reads
from cloudrec.sandbox.kubernetes.lifecycle import FOREGROUND, ORPHAN
from cloudrec.sandbox.kubernetes.store import BACKGROUND
from cloudrec.sandbox.kubernetes.table import copied

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.call import Call

_ORPHANING = ("jobs", "cronjobs")  # whose dependents the API leaves where nobody says otherwise


def create(call: Call) -> Reply:
    """A new object."""
    new = checked(call, call.object)
    made = call.store.create(call.resource.key, new, dry_run=call.dry_run)
    return shown(call, made, HTTPStatus.CREATED)


def update(call: Call) -> Reply:
    """The whole object, or its status, anew."""
    new = checked(call, call.object)
    _check_name(call, new)
    subresource = call.target.subresource
    if call.resource.custom and not new["metadata"].get("resourceVersion"):
        blame = errors.cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise errors.invalid(call.resource.kind, call.resource.group, call.target.name, [blame])
    return shown(call, call.store.update(call.resource.key, new, subresource, dry_run=call.dry_run))


def checked(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    """The body as an object of this kind and namespace; refused where it says otherwise."""
    resource = call.resource
    for field, right in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        told = obj.setdefault(field, right)
        if told != right:
            raise errors.bad_request(
                f"the {field} in the data ({told}) does not match the expected {field} ({right})"
            )
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata is no object")
    namespace = call.target.namespace
    if namespace is not None and metadata.setdefault("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return obj


def _check_name(call: Call, obj: dict[str, Any]) -> None:
    name = obj["metadata"].setdefault("name", call.target.name)
    if name != call.target.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )


def patch(call: Call) -> Reply:
    """A change told as a patch, of the kind that its media type names."""
    entry = reads.existing(call)
    old = copied(entry.obj)
    if call.content_type == "application/merge-patch+json":
        new = merge.merged(old, call.object)
    else:
        raise errors.ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format ({call.content_type})",
        )
    _check_name(call, checked(call, new))
    changed = call.store.update(call.resource.key, new, call.target.subresource, dry_run=call.dry_run)
    return shown(call, changed)


def delete(call: Call) -> Reply:
    """An object's end, or its beginning."""
    entry = reads.existing(call)
    left = _deleted(call, entry.obj)
    if "deletionTimestamp" in left["metadata"]:
        return shown(call, left)
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


def shown(call: Call, obj: dict[str, Any], status: int = 200) -> Reply:
    """An object as an answer."""
    head = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
    body = json.dumps({**head, **obj, **head}, separators=(",", ":")).encode()
    return Reply(status=status, headers=(("Content-Type", "application/json"),), body=body)
