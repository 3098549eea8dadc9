"""The way of a call for a resource: may the user, is it served, who answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes import errors, logs, rbac, reads, reviews, subresources, watch, writes
from cloudrec.sandbox.kubernetes.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.sandbox.http import HttpRequest, Reply
    from cloudrec.sandbox.kubernetes.access import User
    from cloudrec.sandbox.kubernetes.target import Target
    from cloudrec.sandbox.kubernetes.world import Cluster

_HANDLERS: dict[str, Callable[[Call], Reply]] = {
    "get": reads.get,
    "list": reads.list_,
    "watch": watch.answer,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patch,
    "delete": writes.delete,
    "deletecollection": writes.delete_collection,
}
_BELOW: dict[tuple[str, str], Callable[[Call], Reply]] = {
    ("get", "log"): logs.answer,
    ("create", "eviction"): subresources.evict,
    ("create", "binding"): subresources.bind,
    ("create", "token"): subresources.token,
    ("get", "scale"): subresources.scale,
    ("update", "scale"): subresources.scale,
    ("patch", "scale"): subresources.scale,
}
_STATUS_VERBS = ("get", "update", "patch")


def pass_through(world: Cluster, target: Target, request: HttpRequest, user: User) -> Reply:
    """The answer; ApiError where it is a refusal."""
    resource = world.store.resources.find(target.group, target.version, target.plural)
    if resource is None or (target.subresource and target.subresource not in resource.subresources):
        raise errors.no_such_path()
    call = Call(world=world, target=target, request=request, user=user, resource=resource)
    rbac.check(call)
    if target.verb not in resource.verbs:
        raise _not_allowed()
    if resource.is_review:
        return reviews.answer(call)
    if target.subresource in ("", "status"):
        if target.subresource and target.verb not in _STATUS_VERBS:
            raise _not_allowed()
        return _HANDLERS[target.verb](call)
    handler = _BELOW.get((target.verb, target.subresource))
    if handler is None:
        raise _not_allowed()
    return handler(call)


def _not_allowed() -> errors.ApiError:
    return errors.ApiError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
