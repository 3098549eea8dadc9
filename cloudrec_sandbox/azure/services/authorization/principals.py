"""Entra's directory, for role assignments: which principals exist, and since when.

Other services see a new principal after `principal-replication` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.identity import entra

if TYPE_CHECKING:
    from cloudrec_sandbox.core.world import World

durations({"principal-replication": 15})

# The service principal of Microsoft.StorageCache, "HPC Cache Resource Provider"; another id in each tenant.
STORAGE_CACHE = "99999999-aaaa-4bbb-8ccc-dddddddddddd"
USER, SERVICE_PRINCIPAL, GROUP = "User", "ServicePrincipal", "Group"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """A user, group or service principal, which can have roles."""

    kind: str
    known_from: float


@dataclass
class Directory:
    """Principals by object id."""

    rows: dict[str, Principal] = field(
        default_factory=lambda: {STORAGE_CACHE: Principal(kind=SERVICE_PRINCIPAL, known_from=0.0)}
    )


def add(world: World, object_id: str, kind: str = SERVICE_PRINCIPAL, *, old: bool = False) -> None:
    """Make a principal; `old`: all services see it already."""
    known_from = world.now() + (0.0 if old else world.duration("principal-replication"))
    world.state(Directory).rows[object_id.lower()] = Principal(kind=kind, known_from=known_from)


def remove(world: World, object_id: str) -> None:
    """Forget a principal; its role assignments stay."""
    world.state(Directory).rows.pop(object_id.lower(), None)


def find(world: World, object_id: str) -> Principal | None:
    """Return the principal as other services see it by now; None if they see none."""
    found = world.state(Directory).rows.get(object_id.lower())
    if found is None and any(
        client.principal.lower() == object_id.lower()
        for client in world.state(entra.Directory).clients.values()
    ):
        found = Principal(kind=SERVICE_PRINCIPAL, known_from=0.0)
    return found if found and found.known_from <= world.now() else None
