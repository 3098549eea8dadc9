"""Objects as they come and go over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.http import Reply
from cloudrec.sandbox.kubernetes import decode, errors, events, merge, rbac

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.call import Call


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


def decoded(call: Call, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as its kind reads it; what is unknown is refused, told of or dropped, as the client asks."""
    validation = call.query.get("fieldValidation") or "Warn"
    read, call.warnings = decode.decoded(call.resource, call.node, merge.without_nulls(obj), validation)
    whole: dict[str, Any] = read
    rbac.check_grant(call, whole)
    return events.to_core(whole) if call.resource.group == events.GROUP else whole


def shown(call: Call, obj: dict[str, Any], status: int = 200) -> Reply:
    """An object as an answer."""
    head = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
    if call.resource.group == events.GROUP:
        obj = events.from_core(obj)
    body = json.dumps({**head, **obj, **head}, separators=(",", ":")).encode()
    warnings = [("Warning", f"299 - {json.dumps(told)}") for told in call.warnings]
    return Reply(status=status, headers=[("Content-Type", "application/json"), *warnings], body=body)
