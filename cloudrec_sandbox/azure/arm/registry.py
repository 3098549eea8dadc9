"""How service modules add themselves: types of resources, routes, settings, durations, an inventory.

Every module of `cloudrec_sandbox.azure.services` is imported at start, which registers what it decorates: a
class of `kinds.Kind` for resources that are created, changed and removed; a `route` for other requests.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from cloudrec_sandbox.core.book import Book, Entry

if TYPE_CHECKING:
    from types import ModuleType

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.kinds import Kind
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.core.world import World

__all__ = [
    "Entry",
    "Handler",
    "answer",
    "answers",
    "book",
    "charge",
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
inventory, charge, setting, durations = book.inventory, book.charge, book.setting, book.durations
kinds: dict[str, Kind] = {}  # by type, in lower case
routes: dict[
    tuple[str, str], tuple[str, Handler]
] = {}  # by method and type in lower case: the type, the handler
_answerers: list[Callable[[Call], Reply]] = []  # the one that `answers` registers
listeners: list[Callable[[World, Resource], None]] = []


def resource(kind: type[K]) -> type[K]:
    """Register a class of Kind for its type."""
    kinds[kind.type.lower()] = kind()
    return kind


def route(method: str, type_: str) -> Callable[[Handler], Handler]:
    """Register a function for requests that no resource type answers; it comes before any of them.

    `type_` is namespace and types of the path without the names: "Microsoft.Compute/locations/usages",
    "Microsoft.ContainerService/managedClusters/listClusterUserCredential".
    """

    def register(handler: Handler) -> Handler:
        routes[method, type_.lower()] = (type_, handler)
        return handler

    return register


def answers(function: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
    """Register the function that answers the calls of the stand-in's services to each other."""
    _answerers[:] = [function]
    return function


def answer(call: Call) -> Reply:
    """Return the reply to a call that a service makes; ArmError for a refusal."""
    return _answerers[0](call)


def forgotten(function: Callable[[World, Resource], None]) -> Callable[[World, Resource], None]:
    """Register a function that is called for every removed resource, to release what belongs to it."""
    listeners.append(function)
    return function


def load(services: ModuleType) -> None:
    """Import every module of a package of services."""
    for module in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        import_module(module.name)
