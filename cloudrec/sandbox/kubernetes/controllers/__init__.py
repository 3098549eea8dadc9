"""The half of the cluster that acts: controllers, the scheduler, nodes and what runs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes.controllers import settings  # noqa: F401 - its keys of /_control
from cloudrec.sandbox.kubernetes.controllers.plane import Controllers

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.sandbox.clock import Clock
    from cloudrec.sandbox.kubernetes.store import Store

__all__ = ["Controllers", "start"]


def start(store: Store, clock: Clock, *, address: str = "", authority: Path | None = None) -> Controllers:
    """Have a cluster come alive: two nodes, and all that acts; `close` ends every process of it.

    Args:
        store: its objects.
        clock: its time.
        address: URL of its API server, for its pods.
        authority: the certificates by which they know it.
    """
    return Controllers(store, clock, address, authority)
