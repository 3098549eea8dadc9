"""Checks the permissions of a caller.

`enforce_iam` of /_control: true checks every call against its caller's role assignments, and a PUT also
against those on the resources that it refers to.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.core.book import Decisions

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.kinds import Kind
    from cloudrec_sandbox.core.world import World

# Lists that show what the caller may see: a caller without permission gets an empty list.
_OPEN = (
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Resources/tenants/read",
)


@dataclass
class Enforcement:
    """Whether permissions are checked."""

    on: bool = False


def are_enforced(world: World) -> bool:
    """Return whether permissions are checked."""
    return world.state(Enforcement).on


def check(call: Call) -> None:
    """Refuse a call that the caller's roles do not allow."""
    action = call.target.iam_action
    if not are_enforced(call.world) or (action in _OPEN and not call.path.is_item):
        return
    scope = call.path.text if call.path.is_item else call.path.parent
    if not access.has(call.world, call.caller.principal, action, scope or "/"):
        raise ArmError(
            "AuthorizationFailed",
            f"The client '{call.caller.client}' with object id '{call.caller.principal}' does not have "
            f"authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. If "
            f"access was "
            "recently granted, please refresh your credentials.",
            status=HTTPStatus.FORBIDDEN,
        )


def check_linked(call: Call, kind: Kind, body: dict[str, object]) -> None:
    """Refuse a PUT that refers to a resource that the caller may not use."""
    if not are_enforced(call.world):
        return
    for action, scope in kind.linked(call, body):
        if not access.has(call.world, call.caller.principal, action, scope):
            own = f"{kind.type}/write"
            raise ArmError(
                "LinkedAuthorizationFailed",
                f"The client '{call.caller.client}' with object id '{call.caller.principal}' has "
                f"permission to "
                f"perform action '{own}' on scope '{call.path.text}'; however, it does not have permission "
                f"to perform "
                f"action(s) '{action}' on the linked scope(s) '{scope}' (respectively) or the linked "
                f"scope(s) are "
                "invalid.",
                status=HTTPStatus.FORBIDDEN,
            )


def _write(world: World, value: object) -> None:
    world.state(Enforcement).on = bool(value)


setting("decisions", read=Decisions.read, write=Decisions.forget)
setting("enforce_iam", read=are_enforced, write=_write)
