"""What the modules of a stand-in declare beside operations: inventory, charges, settings, durations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudrec_sandbox.core.world import Charge, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

W = TypeVar("W", bound=World)


@dataclass(frozen=True, kw_only=True)
class Setting(Generic[W]):
    """One key of /_control: `read` returns its value, `write` changes it (ValueError for a wrong value)."""

    read: Callable[[W], Any]
    write: Callable[[W, Any], None]


@dataclass(frozen=True, order=True)
class Entry:
    """One resource that exists; `pending`: it is being deleted, or only a record of it is left."""

    service: str
    kind: str
    id: str
    pending: bool = False


@dataclass
class Decisions:
    """Which permissions each identity used and was refused, as an audit log of its cloud has them."""

    used: dict[str, set[str]] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)

    def note(self, who: str, permission: str, *, is_allowed: bool) -> None:
        """Add one decision about an identity."""
        (self.used if is_allowed else self.refused).setdefault(who, set()).add(permission)

    @classmethod
    def read(cls, world: World) -> dict[str, dict[str, list[str]]]:
        """Return the decisions by identity, for /_control."""
        known = world.state(cls)
        return {
            who: {"used": sorted(known.used.get(who, ())), "refused": sorted(known.refused.get(who, ()))}
            for who in sorted({*known.used, *known.refused})
        }

    @classmethod
    def forget(cls, world: World, value: object) -> None:
        """Empty the record; ValueError for anything else."""
        if value != {}:
            raise ValueError("decisions can only be emptied: {}")
        world.state(cls).used.clear()
        world.state(cls).refused.clear()


@dataclass
class Book(Generic[W]):
    """The declarations of one stand-in; each has its own book."""

    inventories: list[Callable[[W], Iterable[Entry]]] = field(default_factory=list)
    charges: list[Callable[[W], Iterable[Charge]]] = field(default_factory=list)
    settings: dict[str, Setting[W]] = field(default_factory=dict)
    default_durations: dict[str, float] = field(default_factory=dict)

    def inventory(self, function: Callable[[W], Iterable[Entry]]) -> Callable[[W], Iterable[Entry]]:
        """Register a function that yields, for /_control/state, what exists."""
        self.inventories.append(function)
        return function

    def charge(self, function: Callable[[W], Iterable[Charge]]) -> Callable[[W], Iterable[Charge]]:
        """Register a function that yields what costs money now, for the bill."""
        self.charges.append(function)
        return function

    def setting(self, name: str, *, read: Callable[[W], Any], write: Callable[[W, Any], None]) -> None:
        """Add a key to /_control."""
        self.settings[name] = Setting(read=read, write=write)

    def durations(self, defaults: Mapping[str, float]) -> None:
        """Declare how long changes take, in virtual seconds; /_control's `durations` changes them by name."""
        self.default_durations.update(defaults)
