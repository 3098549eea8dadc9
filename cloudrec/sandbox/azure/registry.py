"""How service modules add themselves: types of resources, routes, settings, durations, an inventory.

Every module of `cloudrec.sandbox.azure.services` is imported at start, which registers what it decorates: a
class of `kinds.Kind` for what is made, changed and removed; a `route` for what else is asked or ordered.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from cloudrec.sandbox.azure import services
from cloudrec.sandbox.book import Book, Entry

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.kinds import Kind
    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.http import Reply
    from cloudrec.sandbox.world import World

__all__ = [
    "Entry",
    "Handler",
    "book",
    "durations",
    "forgotten",
    "inventory",
    "kinds",
    "listeners",
    "load",
    "resource",
    "route",
    "routes",
    "setting",
]

Handler = Callable[["Call"], "Mapping[str, Any] | Reply"]
K = TypeVar("K", bound="Kind")

book: Book[World] = Book()
inventory, setting, durations = book.inventory, book.setting, book.durations
kinds: dict[str, Kind] = {}  # by type, in lower case
routes: dict[
    tuple[str, str], tuple[str, Handler]
] = {}  # by method and type in lower case: the type, the handler
listeners: list[Callable[[World, Resource], None]] = []


def resource(kind: type[K]) -> type[K]:
    """Let a class of Kind answer for its type."""
    kinds[kind.type.lower()] = kind()
    return kind


def route(method: str, type_: str) -> Callable[[Handler], Handler]:
    """Let a function answer for what no resource type does, before any of them.

    `type_` is namespace and types of the path without the names: "Microsoft.Compute/locations/usages",
    "Microsoft.ContainerService/managedClusters/listClusterUserCredential".
    """

    def register(handler: Handler) -> Handler:
        routes[method, type_.lower()] = (type_, handler)
        return handler

    return register


def forgotten(function: Callable[[World, Resource], None]) -> Callable[[World, Resource], None]:
    """Let a function know of every resource that is gone, as for what others attached to it."""
    listeners.append(function)
    return function


def load() -> None:
    """Import every service module."""
    for module in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        import_module(module.name)
