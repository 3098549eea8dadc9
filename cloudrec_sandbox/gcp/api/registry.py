"""How service modules add themselves: REST and gRPC methods, timed steps, settings, an inventory.

Every module of `cloudrec_sandbox.gcp.services` is imported at start, which registers what it decorates. A
handler of REST gets a `Call` and returns a mapping, a message of Google's, or a `Reply`; a handler of gRPC
gets the `Call` and the request's message and returns a message. Both refuse by raising GcpError.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cloudrec_sandbox.core.book import Book, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

__all__ = [
    "Entry",
    "Method",
    "Rest",
    "Rpc",
    "authority",
    "book",
    "charge",
    "durations",
    "find_rest",
    "find_rpc",
    "inventory",
    "load",
    "may",
    "rest",
    "rpc",
    "setting",
]

RestHandler = Callable[["Call"], Any]
RpcHandler = Callable[["Call", Any], Any]
Authority = Callable[["World", str, str, str, str], bool]

book: Book[World] = Book()
inventory, charge, setting, durations = book.inventory, book.charge, book.setting, book.durations


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method of a service, as the list of calls returns it."""

    service: str
    action: str
    permission: str


@dataclass(frozen=True, kw_only=True)
class Rest(Method):
    """One method of a REST service.

    Attributes:
        pattern: matches the path, as it arrived; the groups are the template's variables.
        body: the class of the body's message; `dict` for any JSON object, `bytes` for anything.
        query: the parameters that it takes beside those that every method takes.
        open: it needs no token and no project.
    """

    verb: str
    pattern: re.Pattern[str]
    handler: RestHandler
    body: Any = None
    query: frozenset[str] = frozenset()
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Rpc(Method):
    """One method of a gRPC service."""

    handler: RpcHandler


_rests: list[Rest] = []
_rpcs: dict[str, Rpc] = {}
_authorities: list[Authority] = []


def rest(
    service: str,
    action: str,
    verb: str,
    template: str,
    *,
    body: Any = None,  # noqa: ANN401 - a class of the SDK's
    query: Sequence[str] = (),
    permission: str = "",
    open: bool = False,  # noqa: A002 - the word for it
) -> Callable[[RestHandler], RestHandler]:
    """Register a function for a method of REST.

    In the template {name} is a segment without a colon, {name=*} one with any, {name=**} all that
    follows, {name=projects/*/locations/*} segments without colons as Google's own templates write them.
    """

    def register(handler: RestHandler) -> RestHandler:
        entry = Rest(
            service=service,
            action=action,
            permission=permission,
            verb=verb,
            pattern=_pattern(template),
            handler=handler,
            body=body,
            query=frozenset(query),
            open=open,
        )
        _rests.append(entry)
        # Fewer variables first, then the longer pattern: a literal segment wins over a variable.
        _rests.sort(key=lambda rest: (rest.pattern.groups, -len(rest.pattern.pattern)))
        return handler

    return register


_SEGMENT = "[^/:]+"
_VARIABLES = {None: _SEGMENT, "*": "[^/]+", "**": ".+"}


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)(?:=([^}]+))?\}", template)
    text = re.escape(parts[0])
    for name, kind, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        inner = _VARIABLES.get(kind) or "/".join(
            _SEGMENT if word == "*" else re.escape(word) for word in kind.split("/")
        )
        text += f"(?P<{name}>{inner}){re.escape(after)}"
    return re.compile(text)


def find_rest(verb: str, path: str) -> tuple[Rest, dict[str, str]] | None:
    """Return the method of a request with the path's variables, decoded; the path is as it arrived."""
    for entry in _rests:
        if entry.verb == verb and (found := entry.pattern.fullmatch(path)):
            return entry, {name: unquote(value) for name, value in found.groupdict().items()}
    return None


def rpc(service: str, method: str, *, permission: str = "") -> Callable[[RpcHandler], RpcHandler]:
    """Register a function for a method of gRPC: google.container.v1.ClusterManager/CreateCluster."""

    def register(handler: RpcHandler) -> RpcHandler:
        action = method.rpartition("/")[2]
        _rpcs[f"/{method}"] = Rpc(service=service, action=action, permission=permission, handler=handler)
        return handler

    return register


def find_rpc(path: str) -> Rpc | None:
    """Return the method of a request; None for an unknown one."""
    return _rpcs.get(path)


def authority(function: Authority) -> Authority:
    """Register a function that decides about permissions: (world, caller, permission, project, resource)."""
    _authorities.append(function)
    return function


def may(world: World, caller: str, permission: str, project: str, resource: str) -> bool:
    """Return whether any registered function allows it; without such functions everything is allowed."""
    asked = [allows(world, caller, permission, project, resource) for allows in _authorities]
    return any(asked) or not asked


def load(services: ModuleType) -> None:
    """Import every module of a package of services."""
    for module in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        import_module(module.name)
