"""Names that must be unique in all of Azure.

`foreign_names` of /_control: {"storage": [...], "registries": [...]}: names that other subscriptions have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.core.world import World

STORAGE, REGISTRIES = "storage", "registries"
_KINDS = (STORAGE, REGISTRIES)


@dataclass
class ForeignNames:
    """Names in lower case, by kind."""

    taken: dict[str, list[str]] = field(default_factory=dict)


def is_foreign(world: World, kind: str, name: str) -> bool:
    """Return whether another subscription has a name."""
    return name.lower() in world.state(ForeignNames).taken.get(kind, [])


def _write(world: World, wishes: Mapping[str, Sequence[str]]) -> None:
    if unknown := sorted(set(wishes) - set(_KINDS)):
        raise ValueError(f"no foreign names of {', '.join(unknown)}; there are: {', '.join(_KINDS)}")
    taken = {kind: [name.lower() for name in names] for kind, names in wishes.items()}
    world.state(ForeignNames).taken.update(taken)


setting("foreign_names", read=lambda world: dict(world.state(ForeignNames).taken), write=_write)
