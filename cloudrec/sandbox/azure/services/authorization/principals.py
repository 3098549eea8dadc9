"""Entra's directory, as far as role assignments ask it: which principals there are, and since when.

Other services learn of a new principal late: `principal-replication` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.sandbox.azure import entra
from cloudrec.sandbox.azure.registry import durations

if TYPE_CHECKING:
    from cloudrec.sandbox.world import World

durations({"principal-replication": 15})

USER, SERVICE_PRINCIPAL, GROUP = "User", "ServicePrincipal", "Group"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Somebody who can be given roles."""

    kind: str
    known_from: float


@dataclass
class Directory:
    """Principals by object id."""

    rows: dict[str, Principal] = field(default_factory=dict)


def add(world: World, object_id: str, kind: str = SERVICE_PRINCIPAL, *, old: bool = False) -> None:
    """Make a principal; `old`: everybody knows of it already."""
    known_from = world.now() + (0.0 if old else world.duration("principal-replication"))
    world.state(Directory).rows[object_id.lower()] = Principal(kind=kind, known_from=known_from)


def remove(world: World, object_id: str) -> None:
    """Forget a principal; what it was given stays behind."""
    world.state(Directory).rows.pop(object_id.lower(), None)


def find(world: World, object_id: str) -> Principal | None:
    """The principal that others know of by now; None where they know of none."""
    found = world.state(Directory).rows.get(object_id.lower())
    if found is None and any(
        client.principal.lower() == object_id.lower()
        for client in world.state(entra.Directory).clients.values()
    ):
        found = Principal(kind=SERVICE_PRINCIPAL, known_from=0.0)
    return found if found and found.known_from <= world.now() else None
