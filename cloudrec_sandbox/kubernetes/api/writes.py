"""Create, update, patch and delete over HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import json_reply
from cloudrec_sandbox.kubernetes.api import applying, bodies, options, reads
from cloudrec_sandbox.kubernetes.objects import apply, errors, merge, patches
from cloudrec_sandbox.kubernetes.objects.lifecycle import FOREGROUND, ORPHAN
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.store import BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.kubernetes.api.call import Call

_APPLY = "application/apply-patch+yaml"
_IMMORTAL = ("default", "kube-system", "kube-public")  # NamespaceLifecycle, an admission plugin
_ORPHANING = ("jobs", "cronjobs")  # batch/v1 keeps their dependents unless the client sets a propagation


def create(call: Call) -> Reply:
    """Create an object."""
    new = bodies.decoded(call, bodies.checked(call, call.object))
    if new["metadata"].get("resourceVersion"):
        text = "resourceVersion should not be set on objects to be created"
        raise errors.ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "", text)
    made = call.store.create(call.resource.key, new, dry_run=call.dry_run, track=_tracker(call))
    return bodies.shown(call, made, HTTPStatus.CREATED)


def update(call: Call) -> Reply:
    """Replace an object, or its status."""
    reads.existing(call)
    new = bodies.checked(call, call.object)
    if not new["metadata"].get("name"):
        raise errors.bad_request("name is required")
    _check_name(call, new)
    # A built-in kind may leave the version out, a custom one must name the version that it replaces.
    if call.resource.custom and not new["metadata"].get("resourceVersion"):
        blame = errors.cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise errors.invalid(call.resource.kind, call.resource.group, call.target.name, [blame])
    return _updated(call, new)


def _updated(call: Call, new: dict[str, Any]) -> Reply:
    _check_node(call, new)
    changed = call.store.update(
        call.resource.key,
        bodies.decoded(call, new),
        call.target.subresource,
        dry_run=call.dry_run,
        track=_tracker(call),
    )
    return bodies.shown(call, changed)


def _check_node(call: Call, new: Mapping[str, Any]) -> None:
    """Refuse another node for a pod: only a binding sets it."""
    if call.resource.key != "pods" or call.target.subresource:
        return
    old = reads.existing(call).obj
    if (new.get("spec") or {}).get("nodeName") != old["spec"].get("nodeName"):
        blame = errors.cause(
            "spec", "Forbidden: pod updates may not change spec.nodeName", "FieldValueForbidden"
        )
        raise errors.invalid("Pod", "", call.target.name, [blame])


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
    """Change an object by a patch, in the format that its media type names."""
    if call.content_type == _APPLY:
        return applying.answer(call)
    old = copied(reads.existing(call).obj)
    new = _patched(call, old)
    _check_patched(call, new, old)
    _check_name(call, bodies.checked(call, new))
    return _updated(call, new)


def _check_patched(call: Call, new: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Refuse with 422 a patch that makes another object of it, or one that its kind cannot read."""
    uid, right = (new.get("metadata") or {}).get("uid"), old["metadata"]["uid"]
    if uid != right:
        check_uid(call, uid)
    why = ""
    if (new.get("apiVersion"), new.get("kind")) != (call.resource.api_version, call.resource.kind):
        given = f"{new.get('kind')} in version {new.get('apiVersion')}"
        why = f"{given} cannot be handled as a {call.resource.kind}"
    else:
        try:
            bodies.decoded(call, copied(new))
        except errors.ApiError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            why = error.message
    if why:
        blame = errors.cause("patch", f"Invalid value: {why}")
        raise errors.invalid(call.resource.kind, call.resource.group, call.target.name, [blame])


def check_uid(call: Call, uid: object) -> None:
    """Refuse a change of the uid."""
    blame = errors.cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
    raise errors.invalid(call.resource.kind, call.resource.group, call.target.name, [blame])


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
    """Delete an object, or begin its deletion."""
    if call.resource.key == "namespaces" and call.target.name in _IMMORTAL:
        raise errors.forbidden("namespaces", "", call.target.name, "this namespace may not be deleted")
    entry = reads.existing(call)
    left = _deleted(call, entry.obj)
    # Still held by finalizers or by its grace period: the reply is the object, not a Status of success.
    if "deletionTimestamp" in left["metadata"]:
        return bodies.shown(call, left)
    return json_reply(_gone(call, entry.obj))


def delete_collection(call: Call) -> Reply:
    """Delete all objects that the selectors match."""
    entries = reads.selected(call)
    for entry in entries:
        _deleted(call, entry.obj)
    return reads.list_of(call.resource, entries, call.store.table.version)


def _deleted(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    wish = {**(call.body or {})}
    options.check_deletion(wish)
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
