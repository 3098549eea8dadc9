"""The half of the cluster that acts: controllers, the scheduler, nodes and what runs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes.controllers.plane import Controllers

if TYPE_CHECKING:
    from cloudrec.sandbox.clock import Clock
    from cloudrec.sandbox.kubernetes.store import Store

__all__ = ["Controllers", "start"]


def start(store: Store, clock: Clock) -> Controllers:
    """Have a cluster come alive: two nodes, and all that acts; `close` ends every process of it."""
    return Controllers(store, clock)
