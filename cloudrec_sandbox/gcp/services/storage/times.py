"""Times as Cloud Storage writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World


def moment(world: World) -> str:
    """Return the present time, in UTC with a Z, without which the SDK does not parse it."""
    return as_datetime(world.now()).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
