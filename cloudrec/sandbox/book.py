"""What the modules of one stand-in declare beside their operations: an inventory, settings, durations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudrec.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

W = TypeVar("W", bound=World)


@dataclass(frozen=True, kw_only=True)
class Setting(Generic[W]):
    """One key of /_control: how to tell it, and how to change it (ValueError for what does not fit)."""

    read: Callable[[W], Any]
    write: Callable[[W, Any], None]


@dataclass(frozen=True, order=True)
class Entry:
    """One thing that exists; `pending`: it is on its way out or only a tombstone."""

    service: str
    kind: str
    id: str
    pending: bool = False


@dataclass
class Book(Generic[W]):
    """The declarations of one stand-in; each has a book of its own."""

    inventories: list[Callable[[W], Iterable[Entry]]] = field(default_factory=list)
    settings: dict[str, Setting[W]] = field(default_factory=dict)
    default_durations: dict[str, float] = field(default_factory=dict)

    def inventory(self, function: Callable[[W], Iterable[Entry]]) -> Callable[[W], Iterable[Entry]]:
        """Let a function tell, for /_control/state, what exists."""
        self.inventories.append(function)
        return function

    def setting(self, name: str, *, read: Callable[[W], Any], write: Callable[[W, Any], None]) -> None:
        """Add a key to /_control."""
        self.settings[name] = Setting(read=read, write=write)

    def durations(self, defaults: Mapping[str, float]) -> None:
        """Declare how long things take, in virtual seconds; /_control's `durations` changes them by name."""
        self.default_durations.update(defaults)
