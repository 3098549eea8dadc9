"""Server-side apply over HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.api import bodies, rbac
from cloudrec_sandbox.kubernetes.objects import apply, decode, errors, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.kubernetes.api.call import Call


def answer(call: Call) -> Reply:
    """Return the object after the body is applied; it is created if it does not exist."""
    wish = _wish(call)
    target, resource = call.target, call.resource
    entry = call.store.table.get(resource.key, (target.namespace or "", target.name))
    live = entry.obj if entry else None
    if live is None and target.subresource:
        raise errors.not_found(resource.plural, resource.group, target.name)
    # The call is a patch, which RBAC has already allowed; making a new object also takes the right to create.
    if live is None:
        rbac.check(call, "create")
    _check_identity(call, wish["metadata"], live)
    manager = apply.Manager(
        name=call.manager,
        operation=apply.APPLY,
        subresource=target.subresource,
        resource=resource,
        now=call.store.timestamp(),
    )
    result, owners = apply.applied(call.node, manager, wish, live, force=target.flag("force"))
    return _stored(call, result, owners, is_new=live is None)


def _wish(call: Call) -> dict[str, Any]:
    """Return the body; refused if it cannot be applied."""
    if not call.query.get("fieldManager"):
        blame = errors.cause(
            "fieldManager", "Required value: is required for apply patch", "FieldValueRequired"
        )
        raise errors.invalid("PatchOptions", "meta.k8s.io", "", [blame])
    wish: dict[str, Any] = merge.without_nulls(call.object)
    for field in ("apiVersion", "kind"):
        if not wish.get(field):
            raise errors.bad_request(f"invalid object type: {field} is not set")
    wish = bodies.checked(call, wish)
    metadata, name = wish["metadata"], call.target.name
    if "managedFields" in metadata:
        raise errors.bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    # The real server's merge code refuses such a body before any other rule, with status 500.
    if why := decode.untyped(call.node, wish):
        raise _untyped(call, why)
    return wish


def _check_identity(call: Call, metadata: dict[str, Any], live: Mapping[str, Any] | None) -> None:
    """Refuse another uid, and an old version of an object that exists."""
    uid, version = metadata.get("uid"), metadata.pop("resourceVersion", None)
    resource, name = call.resource, call.target.name
    if live is None:
        if uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise errors.conflict(resource.plural, resource.group, name, why)
        return
    if version and version != live["metadata"]["resourceVersion"]:
        raise errors.conflict(resource.plural, resource.group, name)
    if uid and uid != live["metadata"]["uid"]:
        blame = errors.cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
        raise errors.invalid(resource.kind, resource.group, name, [blame])


def _untyped(call: Call, why: str) -> errors.ApiError:
    resource, target = call.resource, call.target
    return errors.ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "",
        f"failed to create typed patch object ({target.namespace or ''}/{target.name}; "
        f"{resource.api_version}, Kind={resource.kind}): {why}",
    )


def _stored(call: Call, result: dict[str, Any], owners: list[dict[str, Any]], *, is_new: bool) -> Reply:
    def track(new: dict[str, Any], _old: Mapping[str, Any] | None) -> None:
        apply.note(new, owners)

    if call.target.namespace:
        result["metadata"]["namespace"] = call.target.namespace  # a field without an owner
    key, new = call.resource.key, bodies.decoded(call, result)
    if is_new:
        made = call.store.create(key, new, dry_run=call.dry_run, track=track)
        return bodies.shown(call, made, HTTPStatus.CREATED)
    changed = call.store.update(key, new, call.target.subresource, dry_run=call.dry_run, track=track)
    return bodies.shown(call, changed)
