"""Reviews of rights and tokens, which are requested as if an object were created."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.kubernetes.api import rbac
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage import access

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.api.call import Call


def answer(call: Call) -> Reply:
    """Return the review with its answer in the status."""
    asked = call.object
    spec = asked.get("spec") or {}
    status = _HANDLERS[call.resource.key](call, spec)
    head = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
    return json_reply({**asked, **head, "status": status}, HTTPStatus.CREATED)


def _own_access(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    return _access(call, call.user, spec)


def _others_access(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    user = access.User(name=spec.get("user", ""), groups=tuple(spec.get("groups") or ()))
    return _access(call, user, spec)


def _access(call: Call, user: access.User, spec: dict[str, Any]) -> dict[str, Any]:
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        blame = errors.cause(
            "spec.resourceAttributes",
            "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )
        raise errors.invalid(call.resource.kind, call.resource.group, "", [blame])
    below = wanted.get("subresource")
    deed = rbac.Deed(
        verb=wanted.get("verb", ""),
        group=wanted.get("group", ""),
        resource=f"{wanted.get('resource', '')}/{below}" if below else wanted.get("resource", ""),
        name=wanted.get("name", ""),
        namespace=wanted.get("namespace", ""),
    )
    return {"allowed": rbac.allows(call.store, user, deed)}


def _rules(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    rules = [
        rule
        for rule in rbac.rules_of(call.store, call.user, spec.get("namespace", ""))
        if rule.get("resources")
    ]
    return {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}


def _self(call: Call, _spec: dict[str, Any]) -> dict[str, Any]:
    return {"userInfo": access.described(call.user)}


def _token(call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    user = call.store.tokens.user(call.store, spec.get("token", ""))
    return {"authenticated": True, "user": access.described(user)} if user else {"authenticated": False}


_HANDLERS = {
    "selfsubjectaccessreviews": _own_access,
    "subjectaccessreviews": _others_access,
    "selfsubjectrulesreviews": _rules,
    "selfsubjectreviews": _self,
    "tokenreviews": _token,
}
