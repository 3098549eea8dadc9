"""GET, HEAD, PUT, PATCH, DELETE and lists of any registered type, in the order of ARM's own checks."""

from __future__ import annotations

import copy
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm import bodies, operations
from cloudrec_sandbox.azure.arm.errors import ArmError, group_not_found, malformed, not_found
from cloudrec_sandbox.azure.arm.pages import page
from cloudrec_sandbox.azure.arm.registry import kinds
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.authorization import enforcement
from cloudrec_sandbox.azure.services.lag import READS, misses
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.kinds import Kind
    from cloudrec_sandbox.core.world import World


def answer(call: Call, kind: Kind) -> Reply:
    """Answer by the request's method."""
    if not call.path.is_item:
        if call.target.method != "GET":
            raise _not_allowed(call)
        return listing(call, kind)
    handlers = {"GET": get, "HEAD": get, "PUT": put, "PATCH": patch, "DELETE": delete}
    if call.target.method not in handlers:
        raise _not_allowed(call)
    return handlers[call.target.method](call, kind)


def get(call: Call, kind: Kind) -> Reply:
    """Return one resource."""
    rules.check_group(call, kind)
    resource = _found(call, kind)
    if misses(call.world, READS, resource.key, resource.made_at):
        raise _missing(call, kind)
    return json_reply(kind.show(call.world, resource), headers=_etag(resource))


def listing(call: Call, kind: Kind) -> Reply:
    """Return all resources of a type in a group, in the subscription, or of a parent."""
    rules.check_group(call, kind)
    path, owner = call.path, call.path.parent
    if len(path.types) > 1 and store(call.world).find(owner) is None:
        raise _no_parent(call)
    depth = owner.count("/") + (0 if len(path.types) > 1 or path.group else 2)
    rows = [
        kind.show(call.world, resource)
        for resource in store(call.world).of_type(kind.type, under=owner)
        if len(path.types) == 1 or resource.id.count("/") == depth + 2
    ]
    return page(call, rows, kind.page)


def put(call: Call, kind: Kind) -> Reply:
    """Create a resource, or replace it."""
    body, old = _body(call, kind, kind.model), store(call.world).find(call.path.text)
    # The order is ARM's own: a request with several errors gets the first of them.
    rules.check_parents(call, kind)
    rules.check_name(kind, call.path)
    _check_match(call, kind, old)
    if kind.is_located:
        rules.check_location(kind, call.path, body, old)
    enforcement.check_linked(call, kind, body)
    _check_free(call, kind)
    kind.check(call, body, old)
    return _write(call, kind, body, old)


def patch(call: Call, kind: Kind) -> Reply:
    """Change the members that the body names."""
    if not kind.patch_model:
        raise _not_allowed(call)
    change = _body(call, kind, kind.patch_model)
    rules.check_group(call, kind)
    old = _found(call, kind)
    rules.check_parents(call, kind)
    _check_match(call, kind, old)
    _check_free(call, kind)
    enforcement.check_linked(call, kind, change)
    body = merged(old.document, change)
    kind.check(call, body, old)
    return _write(call, kind, body, old)


def _write(call: Call, kind: Kind, body: dict[str, Any], old: Resource | None) -> Reply:
    world = call.world
    before = copy.deepcopy(old.document) if old else None
    # PUT of an existing resource keeps its id as it was spelt first.
    resource = old or Resource(
        id=call.path.spelt(kind.type),
        type=kind.type,
        document={},
        made_at=world.now(),
        changed_at=world.now(),
    )
    given = {key: value for key, value in copy.deepcopy(body).items() if key not in ("id", "name", "type")}
    resource.document = {"id": resource.id, "name": resource.name, "type": kind.type, **given}
    resource.changed_at, resource.etag = world.now(), str(uuid4())
    resource.properties.pop("provisioningState", None)
    try:
        kind.build(call, body, resource, before)
    except ArmError:
        resource.document = before or resource.document
        raise
    store(world).add(resource)
    verb = "update" if old else "create"
    name = kind.time(resource, "patch" if call.target.method == "PATCH" else verb)
    status = kind.update_status if old else kind.create_status
    if not name:
        kind.mark(resource, operations.SUCCEEDED)
        return json_reply(kind.show(world, resource), status, _etag(resource))
    kind.mark(resource, "Updating" if old else "Creating")
    operation = operations.start(world, resource, verb, world.duration(name), fault=call.fault)
    kind.begun(call, resource, operation)
    headers = [*operations.headers(call, operation), *_etag(resource)]
    if status == HTTPStatus.ACCEPTED:
        return Reply(status=status, headers=headers)
    return json_reply(kind.show(world, resource), status, headers)


def delete(call: Call, kind: Kind) -> Reply:
    """Remove a resource; 204 if it does not exist, but 404 for a group."""
    rules.check_group(call, kind, missing_is_fine=True)
    resource = store(call.world).find(call.path.text)
    if resource is None and not kind.needs_group:  # a group
        raise group_not_found(call.path.name)
    if resource is None:
        return Reply(status=HTTPStatus.NO_CONTENT)
    _check_match(call, kind, resource)
    # A second DELETE joins the one in progress.
    if resource.deleting and (running := operations.find(call.world, resource.busy)):
        return Reply(status=HTTPStatus.ACCEPTED, headers=operations.headers(call, running))
    _check_free(call, kind, deletes=True)
    kind.check_delete(call.world, resource)
    operation = begin_delete(call.world, kind, resource)
    if operation is None:
        return Reply(status=HTTPStatus.OK)
    if call.fault is not None:
        operation.failure = {"code": call.fault.code, "message": call.fault.message}
    kind.begun(call, resource, operation)
    return Reply(status=HTTPStatus.ACCEPTED, headers=operations.headers(call, operation))


def begin_delete(world: World, kind: Kind, resource: Resource) -> operations.Operation | None:
    """Begin a deletion that nothing prevents; return None if it is done at once."""
    kind.before_delete(world, resource)
    if not kind.delete_time:
        operations.remove(world, resource)
        return None
    kind.mark(resource, "Deleting")
    resource.deleting = True
    operation = operations.begin(world, resource, "delete", retry_after=kind.retry_after)
    kind.schedule_delete(world, resource, operation)
    return operation


def merged(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a document with a change merged in: objects member by member, tags and others as a whole."""
    result = copy.deepcopy(document)
    for key, value in change.items():
        if key != "tags" and isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _body(call: Call, kind: Kind, model: str) -> dict[str, Any]:
    body = call.body
    if not isinstance(body, dict):
        raise malformed(kind.malformed, ["the body: not an object"])
    if kind.takes_tags:
        rules.check_tags(body.get("tags"))
    if model and (faults := bodies.faults(model, body)):
        raise malformed(kind.malformed, faults)
    found: dict[str, Any] = body
    return found


def _found(call: Call, kind: Kind) -> Resource:
    resource = store(call.world).find(call.path.text)
    if resource is not None:
        return resource
    if len(call.path.types) > 1 and store(call.world).find(call.path.parent) is None:
        raise _no_parent(call)
    raise _missing(call, kind)


def _missing(call: Call, kind: Kind) -> ArmError:
    return kind.missing(call.path) or not_found(call.path.text, kind.type, call.path.group)


def _no_parent(call: Call) -> ArmError:
    parent = call.path.parent
    outer = kinds.get(call.path.type.lower().rpartition("/")[0])
    return not_found(parent, outer.type if outer else call.path.namespace, call.path.group)


def _check_match(call: Call, kind: Kind, old: Resource | None) -> None:
    """Refuse a resource that must not exist, or that changed since the client read it."""
    wanted, unwanted = call.header("if-match"), call.header("if-none-match")
    tags = {f'W/"{old.etag}"', f'"{old.etag}"', old.etag, "*"} if old else set()
    if wanted and wanted not in tags:
        raise kind.unmatched("If-Match")
    if unwanted and unwanted in tags:
        raise kind.unmatched("If-None-Match")


def _check_free(call: Call, kind: Kind, *, deletes: bool = False) -> None:
    """Refuse if another operation holds a resource that this one needs; a deletion may end that operation."""
    for resource in kind.locks(call.world, call.path):
        operation = operations.find(call.world, resource.busy) if resource.busy else None
        if operation is None or operation.is_over:
            continue
        if not (deletes and kind.interrupt(call.world, resource, operation)):
            raise kind.busy(resource, operation)


def _etag(resource: Resource) -> list[tuple[str, str]]:
    return [("ETag", f'W/"{resource.etag}"')]


def _not_allowed(call: Call) -> ArmError:
    method = re.sub(r"\W", "", call.target.method)
    return ArmError(
        "MethodNotAllowed" if call.path.is_item else "InvalidResourceType",
        f"The requested resource type '{call.path.type}' does not support http method '{method}'.",
        status=HTTPStatus.METHOD_NOT_ALLOWED,
    )
