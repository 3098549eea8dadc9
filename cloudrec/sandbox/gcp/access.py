"""Whether permissions are enforced, and how a missing one is refused.

`enforce_iam` of /_control: false at start: whoever has a token may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.sandbox.gcp import registry
from cloudrec.sandbox.gcp.apis import APIS
from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.registry import setting

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.call import Call
    from cloudrec.sandbox.gcp.world import World


@dataclass
class Permissions:
    """Whether they are enforced."""

    enforced: bool = False


def permitted(call: Call, permission: str, project: str, resource: str) -> bool:
    """Whether the caller has a permission on something in a project."""
    if not permission or not call.world.state(Permissions).enforced:
        return True
    return registry.may(call.world, call.caller, permission, project, resource)


def demand(call: Call, permission: str) -> None:
    """GcpError unless the caller has a permission that only the call's own content tells."""
    call.target.iam_action = permission
    path = next(iter(call.params.values()), "")
    if not permitted(call, permission, call.project, path):
        raise denied(call, permission, path)


def denied(call: Call, permission: str, resource: str) -> GcpError:
    """The refusal of what a caller may not do."""
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


setting("enforce_iam", read=lambda world: world.state(Permissions).enforced, write=_write)
