"""How service modules add themselves: operations, timed steps, settings, an inventory.

Every module of `cloudrec_sandbox.aws.services` is imported at start, which registers what it decorates. A
handler gets a `Call` and returns a mapping in boto3's shape of the operation's output, or a `Reply`. It may
answer by itself, refuse by raising AwsError, or call the next handler (moto is the last) with
`call.pass_on()` or `call.output()`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.book import Book, Entry

if TYPE_CHECKING:
    from types import ModuleType

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

__all__ = [
    "Entry",
    "Handler",
    "book",
    "chain",
    "charge",
    "durations",
    "inventory",
    "load",
    "operation",
    "setting",
]

Handler = Callable[["Call"], "Mapping[str, Any] | Reply"]


_handlers: list[
    tuple[int, str, str, str, Handler]
] = []  # order, module, service, pattern of actions, handler
book: Book[World] = Book()
inventory, charge, setting, durations = book.inventory, book.charge, book.setting, book.durations


def operation(service: str, *actions: str, order: int = 0) -> Callable[[Handler], Handler]:
    """Register a function for `actions` of botocore's `service`: names, or patterns such as Describe*.

    Handlers of one action form a chain: the one with the lowest order gets the call first.
    """

    def register(handler: Handler) -> Handler:
        _handlers.extend((order, handler.__module__, service, action, handler) for action in actions)
        chain.cache_clear()
        return handler

    return register


@cache
def chain(service: str, action: str) -> tuple[Handler, ...]:
    """Return the handlers of one action, outermost first."""
    found = [entry for entry in _handlers if fnmatchcase(service, entry[2]) and fnmatchcase(action, entry[3])]
    return tuple(entry[4] for entry in sorted(found, key=lambda entry: entry[:2]))


def load(services: ModuleType) -> None:
    """Import every module of a package of services."""
    for module in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        import_module(module.name)
