"""The checks of a call for a resource: the user's permission, the kind, the verb; then its handler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes import logs, reviews
from cloudrec_sandbox.kubernetes.api import forms, options, rbac, reads, subresources, watch, writes
from cloudrec_sandbox.kubernetes.api.call import Call
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.objects.lifecycle import RESIZE
from cloudrec_sandbox.kubernetes.rules import security
from cloudrec_sandbox.kubernetes.streams import answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.core.http import HttpRequest, Reply
    from cloudrec_sandbox.kubernetes.api.target import Target
    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.storage.access import User

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
    ("get", "exec"): answers.execute,
    ("create", "exec"): answers.execute,
    ("get", "portforward"): answers.forward,
    ("create", "portforward"): answers.forward,
    ("create", "eviction"): subresources.evict,
    ("create", "binding"): subresources.bind,
    ("create", "token"): subresources.token,
    ("get", "scale"): subresources.scale,
    ("update", "scale"): subresources.scale,
    ("patch", "scale"): subresources.scale,
}
_STATUS_VERBS = ("get", "update", "patch")
_WRITES = ("create", "update", "patch")


def pass_through(world: Cluster, target: Target, request: HttpRequest, user: User) -> Reply:
    """Return the answer; ApiError for a refusal."""
    resource = world.store.resources.find(target.group, target.version, target.plural)
    if resource is None and target.group and target.group not in world.store.resources.groups():
        raise errors.PageNotFoundError
    if resource is None or (target.subresource and target.subresource not in resource.subresources):
        raise errors.no_such_path()
    call = Call(world=world, target=target, request=request, user=user, resource=resource)
    rbac.check(call)
    if target.verb not in resource.verbs:
        raise options.not_allowed()
    options.check(call)
    if resource.is_review:
        return reviews.answer(call)
    if target.subresource in ("", "status", RESIZE):
        if target.subresource and target.verb not in _STATUS_VERBS:
            raise options.not_allowed()
        reply = forms.shown(call, _HANDLERS[target.verb](call))
        return _with_warnings(call, reply) if target.verb in _WRITES else reply
    handler = _BELOW.get((target.verb, target.subresource))
    if handler is None:
        raise options.not_allowed()
    return handler(call)


def _with_warnings(call: Call, reply: Reply) -> Reply:
    """Add the header Warning to the reply to a written pod, or object with a template of pods."""
    obj = json.loads(reply.body) if reply.body else {}
    spec = obj.get("spec") or {}
    if call.target.plural != "pods":
        spec = (spec.get("template") or {}).get("spec") or {}
    namespace = (obj.get("metadata") or {}).get("namespace", "")
    if not spec.get("containers") or not namespace:
        return reply
    texts = [
        text.replace("\\", "\\\\").replace('"', '\\"')
        for text in security.warnings(call.store, namespace, spec)
    ]
    headers = [("Warning", f'299 - "{text}"') for text in texts]
    return replace(reply, headers=[*reply.headers, *headers])
