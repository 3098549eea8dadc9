"""Moments as Cloud Storage writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.world import World


def moment(world: World) -> str:
    """The present one, in UTC with a Z, without which the SDK does not read it."""
    return as_datetime(world.now()).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
