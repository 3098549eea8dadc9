"""Service accounts as other services see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.gcp import store

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.world import World


def usable(world: World, email: str) -> bool:
    """Whether a service account is there, and known to other services by now."""
    known = store.within(world, "iam", "projects/", "serviceAccounts")
    return any(
        account.name == email and account.hidden.get("usable_from", 0.0) <= world.now() for account in known
    )
