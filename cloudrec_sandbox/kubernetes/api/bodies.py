"""Objects in the bodies of requests and replies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.kubernetes.api import rbac
from cloudrec_sandbox.kubernetes.objects import decode, errors, events, merge

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.api.call import Call


def checked(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the body as an object of the path's kind and namespace; refused if it names others."""
    resource = call.resource
    for field, right in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = obj[field] = obj.get(field) or right
        if given != right:
            raise errors.bad_request(
                f"the {field} in the data ({given}) does not match the expected {field} ({right})"
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


def decoded(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as its kind reads it; unknown fields are refused, reported or dropped."""
    validation = call.query.get("fieldValidation") or "Warn"
    read, call.warnings = decode.decoded(call.resource, call.node, merge.without_nulls(obj), validation)
    whole: dict[str, Any] = read
    rbac.check_grant(call, whole)
    return events.to_core(whole) if call.resource.group == events.GROUP else whole


def shown(call: Call, obj: dict[str, Any], status: int = 200) -> Reply:
    """Return a reply with an object."""
    head = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
    if call.resource.group == events.GROUP:
        obj = events.from_core(obj)
    body = json.dumps({**head, **obj, **head}, separators=(",", ":")).encode()
    warnings = [("Warning", f"299 - {json.dumps(text)}") for text in call.warnings]
    return Reply(status=status, headers=[("Content-Type", "application/json"), *warnings], body=body)
