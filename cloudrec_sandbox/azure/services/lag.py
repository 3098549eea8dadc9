"""Eventual consistency: a new resource cannot be seen yet, and a deleted one is still seen.

`lag_s` of /_control, in virtual seconds by name, all 0 at the start:

    groups      a younger resource group is missed by a GET and by a PUT of a resource in it
    resources   a group's or the subscription's list of resources is so old
    reads       every other GET of a younger resource misses it
    and the names that other modules declare
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.world import World

GROUPS, RESOURCES, READS = "groups", "resources", "reads"
_known = {GROUPS, RESOURCES, READS}


@dataclass
class Lags:
    """Seconds by name."""

    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Looks:
    """How often each young resource was requested, by its id."""

    counts: dict[str, int] = field(default_factory=dict)


def declare(name: str) -> str:
    """Add a name that can lag; return it."""
    _known.add(name)
    return name


def lag(world: World, name: str) -> float:
    """Return how far it lags behind now, in virtual seconds."""
    return world.state(Lags).seconds.get(name, 0.0)


def misses(world: World, name: str, id_: str, made_at: float) -> bool:
    """Return whether this GET misses a resource: every other GET of a young one does, from the first on."""
    if world.now() - made_at >= lag(world, name):
        return False
    counts = world.state(Looks).counts
    counts[id_] = counts.get(id_, 0) + 1
    return counts[id_] % 2 == 1


def _write(world: World, wishes: Mapping[str, float]) -> None:
    if unknown := sorted(set(wishes) - _known):
        raise ValueError(f"nothing lags as {', '.join(unknown)}; there are: {', '.join(sorted(_known))}")
    world.state(Lags).seconds.update({name: float(value) for name, value in wishes.items()})


setting("lag_s", read=lambda world: {name: lag(world, name) for name in sorted(_known)}, write=_write)
