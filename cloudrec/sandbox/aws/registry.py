"""How service modules add themselves: operations, timed steps, settings, an inventory.

Every module of `cloudrec.sandbox.aws.services` is imported at start, which registers what it decorates. A
handler gets a `Call` and returns a mapping in boto3's shape of the operation's output, or a `Reply`. It may
answer by itself, refuse by raising AwsError, or ask the next one (moto is the last) with `call.pass_on()`
or `call.output()`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws import services

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.aws.http import Reply
    from cloudrec.sandbox.aws.world import World

Handler = Callable[["Call"], "Mapping[str, Any] | Reply"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of /_control: how to tell it, and how to change it (ValueError for what does not fit)."""

    read: Callable[[World], Any]
    write: Callable[[World, Any], None]


@dataclass(frozen=True, order=True)
class Entry:
    """One thing that exists; `pending`: it is on its way out or only a tombstone."""

    service: str
    kind: str
    id: str
    pending: bool = False


Inventory = Callable[["World"], Iterable[Entry]]

_handlers: list[
    tuple[int, str, str, str, Handler]
] = []  # order, module, service, pattern of actions, handler
inventories: list[Inventory] = []
settings: dict[str, Setting] = {}
default_durations: dict[str, float] = {}


def operation(service: str, *actions: str, order: int = 0) -> Callable[[Handler], Handler]:
    """Let a function handle `actions` of botocore's `service`: names, or patterns such as Describe*.

    Handlers of one action form a chain: the lowest order sees the call first.
    """

    def register(handler: Handler) -> Handler:
        _handlers.extend((order, handler.__module__, service, action, handler) for action in actions)
        chain.cache_clear()
        return handler

    return register


@cache
def chain(service: str, action: str) -> tuple[Handler, ...]:
    """The handlers of one action, outermost first."""
    found = [entry for entry in _handlers if fnmatchcase(service, entry[2]) and fnmatchcase(action, entry[3])]
    return tuple(entry[4] for entry in sorted(found, key=lambda entry: entry[:2]))


def inventory(function: Inventory) -> Inventory:
    """Let a function tell, for /_control/state, what exists."""
    inventories.append(function)
    return function


def setting(name: str, *, read: Callable[[World], Any], write: Callable[[World, Any], None]) -> None:
    """Add a key to /_control."""
    settings[name] = Setting(read=read, write=write)


def durations(defaults: Mapping[str, float]) -> None:
    """Declare how long things take, in virtual seconds; /_control's `durations` changes them by name."""
    default_durations.update(defaults)


def load() -> None:
    """Import every service module."""
    for module in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        import_module(module.name)
