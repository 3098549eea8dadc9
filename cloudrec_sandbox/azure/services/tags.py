"""The tags API: the tags of a resource or a group at their scope, without access to what has them.

Sources: azure-rest-api-specs, Microsoft.Resources 2021-04-01 ("Tags - Get At Scope", "Tags - Update At
Scope"): a PATCH replaces, merges or deletes; the result has 50 tags at most.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm import bodies, operations
from cloudrec_sandbox.azure.arm.errors import ArmError, malformed, not_found
from cloudrec_sandbox.azure.arm.registry import kinds, route
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource

TYPE = "Microsoft.Resources/tags"
_APIS = ("2025-04-01", "2024-11-01", "2024-03-01", "2022-09-01", "2021-04-01", "2019-10-01")
_MODEL = "azure.mgmt.resource.resources.models:TagsPatchResource"
_OPERATIONS = ("Replace", "Merge", "Delete")


@route("GET", TYPE)
def read(call: Call) -> Reply:
    """Return the tags at a scope."""
    return json_reply(_document(call, _resource(call)))


@route("PATCH", TYPE)
def update(call: Call) -> Reply:
    """Replace, merge or delete tags at a scope."""
    resource = _resource(call)
    if faults := bodies.faults(_MODEL, call.body):
        raise malformed("InvalidRequestContent", faults)
    kind = call.body.get("operation")
    if kind not in _OPERATIONS:
        raise malformed("InvalidRequestContent", [f"operation: {kind!r} is none of {', '.join(_OPERATIONS)}"])
    given = (call.body.get("properties") or {}).get("tags") or {}
    rules.check_tags(given)
    tags = _changed(dict(resource.document.get("tags") or {}), given, kind)
    rules.check_tags(tags)
    _check_free(call, resource)
    resource.document["tags"] = tags
    resource.changed_at = call.world.now()
    return json_reply(_document(call, resource))


def _changed(tags: dict[str, str], given: dict[str, str], kind: str) -> dict[str, str]:
    """Return the tags after a change. Names of tags are compared ignoring case, their values are not."""
    if kind == "Replace":
        return given
    names = {name.lower(): name for name in tags}
    for name, value in given.items():
        known = names.get(name.lower(), name)
        if kind == "Merge":
            tags[known] = value
        elif tags.get(known) == value or not value:
            tags.pop(known, None)
    return tags


def _resource(call: Call) -> Resource:
    rules.check_version(call, TYPE, _APIS)
    if call.path.name.lower() != "default":
        raise not_found(call.path.text, TYPE, call.path.group)
    found = store(call.world).find(call.path.scope)
    if found is None or found.type.lower() not in kinds:
        raise ArmError(
            "ResourceNotFound",
            f"The Resource '{call.path.scope}' was not found.",
            status=HTTPStatus.NOT_FOUND,
        )
    if not kinds[found.type.lower()].takes_tags:
        raise ArmError("OperationNotAllowed", f"Resources of type '{found.type}' have no tags.")
    return found


def _check_free(call: Call, resource: Resource) -> None:
    operation = operations.find(call.world, resource.busy) if resource.busy else None
    if resource.deleting or (operation is not None and not operation.is_over):
        raise ArmError(
            "AnotherOperationInProgress",
            f"Another operation on '{resource.name}' is in progress.",
            status=HTTPStatus.CONFLICT,
        )


def _document(call: Call, resource: Resource) -> dict[str, Any]:
    return {
        "id": call.path.text,
        "name": "default",
        "type": TYPE,
        "properties": {"tags": dict(resource.document.get("tags") or {})},
    }
