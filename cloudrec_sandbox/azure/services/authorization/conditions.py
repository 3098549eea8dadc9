"""Conditions of role assignments that let their principal assign only certain roles.

Of Azure's language this supports the parts that such conditions use: lists of role definitions and of
principal types for Microsoft.Authorization/roleAssignments in requests (write) and resources (delete).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.services.authorization import enforcement
from cloudrec_sandbox.azure.services.authorization.access import TYPE, at, role_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.services.authorization.access import Assignment

_ACTIONS = {"PUT": (f"{TYPE}/write", "Request"), "DELETE": (f"{TYPE}/delete", "Resource")}
_CLAUSE = (
    r"@{source}\[Microsoft\.Authorization/roleAssignments:{name}\]\s+ForAnyOfAnyValues:\w+\s*\{{([^}}]*)\}}"
)


def check(call: Call, wanted: Assignment) -> None:
    """Refuse to assign or to remove a role that the caller's own roles do not let it assign or remove."""
    if not enforcement.are_enforced(call.world):
        return
    action, source = _ACTIONS[call.target.method]
    if not any(_allows(row, source, wanted) for row in _grounds(call, action)):
        raise ArmError(
            "AuthorizationFailed",
            f"The client '{call.caller.client}' with object id '{call.caller.principal}' has an "
            f"authorization with ABAC condition that is not fulfilled to perform action '{action}' over "
            f"scope '{wanted.scope}' or the scope is invalid. If access was recently granted, please refresh "
            "your credentials.",
            status=HTTPStatus.FORBIDDEN,
        )


def _grounds(call: Call, action: str) -> Iterator[Assignment]:
    """Yield the caller's assignments that allow the action, without their conditions."""
    for row in at(call.world, call.path.scope):
        if (
            row.principal.lower() == call.caller.principal.lower()
            and row.counts_from <= call.world.now()
            and role_of(call.world, row).allows(action)
        ):
            yield row


def _allows(row: Assignment, source: str, wanted: Assignment) -> bool:
    """Return whether an assignment's condition holds for the wanted assignment."""
    if not row.condition:
        return True
    roles = _values(row.condition, source, "RoleDefinitionId")
    kinds = _values(row.condition, source, "PrincipalType")
    return (roles is None or wanted.role.lower() in roles) and (kinds is None or wanted.kind.lower() in kinds)


def _values(condition: str, source: str, name: str) -> set[str] | None:
    """Return the values that a clause allows for an attribute; None if no clause limits it."""
    match = re.search(_CLAUSE.format(source=source, name=name), condition, re.IGNORECASE)
    return {value.strip(" '\"").lower() for value in match[1].split(",")} if match else None
