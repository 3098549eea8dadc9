"""Server-side apply as it comes over HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes import apply, bodies, decode, errors, merge, rbac

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.http import Reply
    from cloudrec.sandbox.kubernetes.call import Call


def answer(call: Call) -> Reply:
    """The object as it is once the body is applied; it is made where there is none."""
    wish = _wish(call)
    target, resource = call.target, call.resource
    entry = call.store.table.get(resource.key, (target.namespace or "", target.name))
    live = entry.obj if entry else None
    if live is None and target.subresource:
        raise errors.not_found(resource.plural, resource.group, target.name)
    if live is None:
        rbac.check(call, "create")
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
    """The body; refused where it is none that can be applied."""
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
    if metadata.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    if why := decode.untyped(call.node, wish):
        raise _untyped(call, why)
    return wish


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
        result["metadata"]["namespace"] = call.target.namespace  # which nobody owns
    key, new = call.resource.key, bodies.decoded(call, result)
    if is_new:
        made = call.store.create(key, new, dry_run=call.dry_run, track=track)
        return bodies.shown(call, made, HTTPStatus.CREATED)
    changed = call.store.update(key, new, call.target.subresource, dry_run=call.dry_run, track=track)
    return bodies.shown(call, changed)
