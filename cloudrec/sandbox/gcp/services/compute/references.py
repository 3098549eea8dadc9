"""Who uses what in Compute: links of one document to another, and what is just being changed."""

from __future__ import annotations

import base64
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.gcp import store
from cloudrec.sandbox.gcp.errors import GcpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.sandbox.gcp.call import Call
    from cloudrec.sandbox.gcp.store import Resource
    from cloudrec.sandbox.gcp.world import World

    Guard = Callable[[World, Resource], str]

_NO_USE = ("selfLink", "users", "targetLink")  # keys whose links do not hold what they point to
_guards: dict[str, list[Guard]] = {}


def guard(name: str) -> Callable[[Guard], Guard]:
    """Let a function tell what still needs one of a collection, besides documents that point to it."""

    def register(function: Guard) -> Guard:
        _guards.setdefault(name, []).append(function)
        return function

    return register


def refer(call: Call, document: dict[str, Any], name: str, where: str = "resource") -> Resource | None:
    """The thing that a field points to, its link made full; GcpError where it is not there, or not ready."""
    link = document.get(name)
    if not link:
        return None
    path = store.path_of(link, call.project)
    found = store.find(call.world, "compute", path)
    if found is None:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field '{where}.{name}': '{link}'. The referenced {name} resource cannot be"
            " found.",
        )
    ready(found)
    document[name] = store.link(path)
    return found


def ready(resource: Resource) -> Resource:
    """The thing itself; GcpError while something else is done to it."""
    if resource.hidden.get("busy"):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"The resource '{resource.path}' is not ready",
            reason="resourceNotReady",
        )
    return resource


def stamp(document: dict[str, Any], field_: str = "fingerprint") -> None:
    """Give a version of a document a mark of its own."""
    document[field_] = base64.b64encode(secrets.token_bytes(8)).decode()


def check_stamp(resource: Resource, body: Mapping[str, Any], field_: str = "fingerprint") -> None:
    """GcpError where a client has not read the version that there is."""
    if body.get(field_) != resource.document.get(field_):
        raise GcpError(
            "FAILED_PRECONDITION",
            "Supplied fingerprint does not match current metadata fingerprint.",
            http=HTTPStatus.PRECONDITION_FAILED,
        )


def in_use(noun: str, resource: Resource, user: str) -> str:
    """The refusal's text for what somebody uses."""
    return f"The {noun} resource '{resource.path}' is already being used by '{user}'"


def user_of(world: World, resource: Resource) -> str:
    """The path of something that needs a thing; '' where nothing does."""
    for other in store.within(world, "compute", "projects/"):
        if other.path != resource.path and resource.path in pointed(other.document):
            return other.path
    return next(filter(None, (tell(world, resource) for tell in _guards.get(resource.kind, ()))), "")


def pointed(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """The paths that a document points to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NO_USE:
                yield from pointed(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pointed(inner)
    elif isinstance(value, str) and "/" in value:
        yield store.path_of(value)
