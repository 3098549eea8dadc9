"""References in Compute: links of one document to another, and resources that are being changed."""

from __future__ import annotations

import base64
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

    Guard = Callable[[World, Resource], str]

# Keys whose links do not prevent a deletion: a snapshot outlives its disk.
_NO_USE = (
    "selfLink",
    "users",
    "targetLink",
    "sourceDisk",
    "sourceImage",
    "sourceInstance",
    "sourceSnapshot",
)
_guards: dict[str, list[Guard]] = {}


def guard(name: str) -> Callable[[Guard], Guard]:
    """Register a function that returns what still uses a resource, besides documents that link to it."""

    def register(function: Guard) -> Guard:
        _guards.setdefault(name, []).append(function)
        return function

    return register


def refer(call: Call, document: dict[str, Any], name: str, where: str = "resource") -> Resource | None:
    """Return the resource that a field refers to, and complete the link; GcpError if missing or not ready."""
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
    """Return the resource itself; GcpError while another operation changes it."""
    if resource.hidden.get("busy"):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"The resource '{resource.path}' is not ready",
            reason="resourceNotReady",
        )
    return resource


def stamp(document: dict[str, Any], field_: str = "fingerprint") -> None:
    """Set the fingerprint of a document's present version."""
    document[field_] = base64.b64encode(secrets.token_bytes(8)).decode()


def check_stamp(resource: Resource, body: Mapping[str, Any], field_: str = "fingerprint") -> None:
    """Raise GcpError if the client has not read the present version."""
    if body.get(field_) != resource.document.get(field_):
        raise GcpError(
            "FAILED_PRECONDITION",
            "Supplied fingerprint does not match current metadata fingerprint.",
            http=HTTPStatus.PRECONDITION_FAILED,
        )


def in_use(noun: str, resource: Resource, user: str) -> str:
    """Return the error for a resource in use."""
    return f"The {noun} resource '{resource.path}' is already being used by '{user}'"


def user_of(world: World, resource: Resource) -> str:
    """Return the path of a resource that uses this one; '' if none does."""
    for other in store.within(world, "compute", "projects/"):
        if other.path != resource.path and resource.path in pointed(other.document):
            return other.path
    return next(filter(None, (user(world, resource) for user in _guards.get(resource.kind, ()))), "")


def pointed(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the paths that a document links to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NO_USE:
                yield from pointed(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pointed(inner)
    elif isinstance(value, str) and "/" in value:
        yield store.path_of(value)
