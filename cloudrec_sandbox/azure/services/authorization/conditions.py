"""Conditions of role assignments: which are accepted, and what they let their principal assign or remove.

Sources: "Troubleshoot Azure role assignment conditions" (the message; version 1.0 is refused), "FAQ for Azure
role assignment conditions" (the version is 2.0 if none is given; at most 8 KB; the condition names actions of
the role), "Authorize access to Azure Blob Storage using Azure role assignment conditions" (which roles can
have one; those on actions of the resource provider are not supported). No page has the error's code: others
report this one.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.services.authorization import abac, enforcement
from cloudrec_sandbox.azure.services.authorization.abac_syntax import AbsentError, ConditionError, parse
from cloudrec_sandbox.azure.services.authorization.access import TYPE, at, is_fulfilled, role_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.services.authorization.access import Assignment

_VERSION = "2.0"
_MOST = 8 * 1024
_SOURCES = {"PUT": (f"{TYPE}/write", "Request"), "DELETE": (f"{TYPE}/delete", "Resource")}
# The data actions on blobs that conditions may name, below .../containers/blobs.
_ON_BLOBS = (
    "read",
    "write",
    "delete",
    "add/action",
    "move/action",
    "filter/action",
    "tags/read",
    "tags/write",
    "deleteBlobVersion/action",
    "permanentDelete/action",
    "immutableStorage/runAsSuperUser/action",
    "manageOwnership/action",
    "modifyPermissions/action",
    "runAsSuperUser/action",
)


def checked(call: Call, wanted: Assignment) -> Assignment:
    """Return an assignment with its condition's version; ArmError for a condition that it cannot have."""
    if not wanted.condition:
        return wanted
    if (wanted.condition_version or _VERSION) != _VERSION or len(wanted.condition.encode()) > _MOST:
        raise _invalid("its version is not 2.0, or it is longer than 8 KB")
    try:
        node = parse(wanted.condition)
    except AbsentError as error:
        message = f"this stand-in has not: {error}"
        raise ArmError("NotImplemented", message, status=HTTPStatus.NOT_IMPLEMENTED) from error
    except ConditionError as error:
        raise _invalid(str(error)) from error
    conditional = list(_conditional(call, wanted))
    if not conditional:
        raise _invalid("the role has no action that can have one")
    for named in abac.actions(node):
        if not any(named.fits(action) for action in conditional):
            raise _invalid(f"{named.pattern} is no action of the role that can have one")
    return replace(wanted, condition_version=_VERSION)


def _invalid(why: str) -> ArmError:
    return ArmError(
        "InvalidRoleAssignmentCondition", f"The given role assignment condition is invalid. ({why})"
    )


def _conditional(call: Call, wanted: Assignment) -> Iterator[str]:
    """Yield the actions of an assignment's role that conditions may limit."""
    role = role_of(call.world, wanted)
    yield from (action for action, _ in _SOURCES.values() if role.allows(action))
    for name in _ON_BLOBS:
        action = f"{abac.CONTAINERS}/blobs/{name}"
        if role.allows(action, data=True):
            yield action


def check(call: Call, wanted: Assignment) -> None:
    """Refuse to assign or to remove a role that the caller's own roles do not let it assign or remove."""
    if not enforcement.are_enforced(call.world):
        return
    action, source = _SOURCES[call.target.method]
    attributes = {
        "RoleDefinitionId": wanted.role,
        "PrincipalId": wanted.principal,
        "PrincipalType": wanted.kind,
    }
    attempt = abac.Attempt(
        action=action,
        attributes=abac.named({f"@{source}[{TYPE}:{name}]": value for name, value in attributes.items()}),
    )
    if not any(is_fulfilled(row, attempt) for row in _grounds(call, action)):
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
