"""Who may what, once `enforce_iam` of /_control is on: by the policies of the project and of the thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.gcp.registry import authority
from cloudrec.sandbox.gcp.services.iam import policies

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.world import World


@authority
def may(world: World, caller: str, permission: str, project: str, resource: str) -> bool:
    """Whether a policy gives the caller a permission in the project, or for the thing itself."""
    who = f"serviceAccount:{caller}"
    holders = (f"projects/{project}", resource, f"b/{resource}")
    known = world.state(policies.Policies).policies
    return any(policies.allows(world, holder, who, permission) for holder in holders if holder in known)
