"""Eventual consistency: what is new cannot be seen yet, and what is gone is seen still.

`lag_s` of /_control, in virtual seconds by what lags, all 0 at the start:

    groups      a younger resource group is found neither by a GET nor by a PUT of what belongs into it
    resources   a group's or the subscription's list of resources is so old
    reads       every other GET of a younger resource does not find it
    and what other modules declare
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.sandbox.azure.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.world import World

GROUPS, RESOURCES, READS = "groups", "resources", "reads"
_known = {GROUPS, RESOURCES, READS}


@dataclass
class Lags:
    """Seconds by name."""

    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Looks:
    """How often each young thing was asked for, by its id."""

    counts: dict[str, int] = field(default_factory=dict)


def declare(name: str) -> str:
    """Add something that may lag; its name."""
    _known.add(name)
    return name


def lag(world: World, name: str) -> float:
    """How far it lags behind just now, in virtual seconds."""
    return world.state(Lags).seconds.get(name, 0.0)


def misses(world: World, name: str, id_: str, made_at: float) -> bool:
    """Whether this look at something does not find it: every other look at what is young, from the first."""
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
