"""Forms of objects that a client may accept: metadata alone, or a table.

Kubernetes' documentation, "API concepts", describes both.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.kubernetes.api.call import Call

_VERSION = "meta.k8s.io/v1"
_NAME = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
_AGE = {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0}


def shown(call: Call, reply: Reply) -> Reply:
    """Return a reply in the first form that the client accepts."""
    form = _form(call)
    if not form or not reply.body or reply.stream is not None:
        return reply
    document = json.loads(reply.body)
    items = document.get("items")
    if form.startswith("PartialObjectMetadata"):
        made = _partial(document)
        if items is not None:
            made |= {"kind": "PartialObjectMetadataList", "items": [_partial(each) for each in items]}
    else:
        made = _table(document, [document] if items is None else items)
    return replace(reply, body=json.dumps(made, separators=(",", ":")).encode())


def _form(call: Call) -> str:
    for part in call.request.lower.get("accept", "").split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        named = dict(each.partition("=")[::2] for each in parameters)
        if kind == "application/json" and "as" not in named:
            return ""
        if kind == "application/json" and named.get("g") == "meta.k8s.io" and named.get("v") == "v1":
            return named["as"]
    return ""


def _head(document: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "metadata": document.get("metadata", {})}


def _partial(obj: dict[str, Any]) -> dict[str, Any]:
    return {**_head(obj), "kind": "PartialObjectMetadata"}


def _table(document: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        {"cells": [each["metadata"][key] for key in ("name", "creationTimestamp")], "object": _partial(each)}
        for each in items
    ]
    kept = {
        key: value
        for key, value in document.get("metadata", {}).items()
        if key in ("resourceVersion", "continue")
    }
    return {
        "kind": "Table",
        "apiVersion": _VERSION,
        "metadata": kept,
        "columnDefinitions": [_NAME, _AGE],
        "rows": rows,
    }
