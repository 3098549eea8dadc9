"""The half of the cluster that acts: controllers, the scheduler, nodes and their containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.controllers import settings  # noqa: F401 - its keys of /_control
from cloudrec_sandbox.kubernetes.controllers.plane import Controllers

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.kubernetes.storage.store import Store

__all__ = ["Controllers", "start"]


def start(store: Store, clock: Clock, *, address: str = "", authority: Path | None = None) -> Controllers:
    """Start a cluster with two nodes; `close` of the result ends every process of the cluster.

    Args:
        store: its objects.
        clock: its time.
        address: URL of its API server, for its pods.
        authority: the certificates by which they verify it.
    """
    return Controllers(store, clock, address, authority)
