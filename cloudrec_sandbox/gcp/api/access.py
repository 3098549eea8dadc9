"""Whether permissions are enforced, and how a missing one is refused.

`enforce_iam` of /_control: false at start: any token allows everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec_sandbox.core.book import Decisions
from cloudrec_sandbox.gcp.api import projects, registry
from cloudrec_sandbox.gcp.api.apis import APIS
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import setting

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World


@dataclass
class Permissions:
    """Whether permissions are enforced."""

    enforced: bool = False


def permitted(call: Call, permission: str, project: str, resource: str) -> bool:
    """Return whether the caller has a permission on a resource of a project."""
    if not permission or not call.world.state(Permissions).enforced:
        return True
    is_allowed = registry.may(call.world, call.caller, permission, project, resource)
    call.world.state(Decisions).note(call.caller, permission, is_allowed=is_allowed)
    return is_allowed


def demand(call: Call, permission: str, resource: str = "") -> None:
    """Raise GcpError unless the caller has a permission that depends on the call's content.

    Args:
        call: the call.
        permission: the permission.
        resource: what it is for; the resource that the path names if empty.
    """
    call.target.iam_action = permission
    path = resource or next(iter(call.params.values()), "")
    if not permitted(call, permission, call.project or projects.HOME, path):
        raise denied(call, permission, path)


def denied(call: Call, permission: str, resource: str) -> GcpError:
    """Return the refusal of a call without the permission."""
    if call.service == "compute":
        text = f"Required '{permission}' permission for '{call.raw.path.partition('/compute/v1/')[2]}'"
        return GcpError("PERMISSION_DENIED", text)
    if call.service == "storage":
        text = (
            f"{call.caller} does not have {permission} access to the Google Cloud Storage resource."
            f" Permission '{permission}' denied on resource (or it may not exist)."
        )
        return GcpError("PERMISSION_DENIED", text)
    host = APIS[call.service].host
    return GcpError(
        "PERMISSION_DENIED",
        f"Permission '{permission}' denied on resource '//{host}/{resource}' (or it may not exist).",
        reason="IAM_PERMISSION_DENIED",
        metadata={"permission": permission, "resource": resource},
    )


def _write(world: World, wish: object) -> None:
    world.state(Permissions).enforced = bool(wish)


setting("decisions", read=Decisions.read, write=Decisions.forget)
setting("enforce_iam", read=lambda world: world.state(Permissions).enforced, write=_write)
