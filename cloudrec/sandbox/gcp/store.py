"""All resources of the REST services in one place: each has a service, a collection, a path, a document."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.clock import as_datetime
from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.registry import Entry, inventory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.gcp.world import World

_ROOT = "https://www.googleapis.com/compute/v1/"


@dataclass
class Resource:
    """One thing: `path` as in projects/P/global/networks/N; `hidden` is for what no document shows."""

    service: str
    kind: str
    path: str
    document: dict[str, Any]
    pending: bool = False
    hidden: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The path's last word."""
        return self.path.rpartition("/")[2]


@dataclass
class Store:
    """The resources by service and path."""

    resources: dict[tuple[str, str], Resource] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


def add(
    world: World, service: str, kind: str, path: str, document: dict[str, Any], *, pending: bool = False
) -> Resource:
    """Keep a thing; what was there under its path is replaced."""
    resource = Resource(service, kind, path, document, pending)
    world.state(Store).resources[service, path] = resource
    return resource


def find(world: World, service: str, path: str) -> Resource | None:
    """The thing of a path."""
    return world.state(Store).resources.get((service, path))


def need(world: World, service: str, path: str) -> Resource:
    """The thing of a path; GcpError where there is none."""
    resource = find(world, service, path)
    if resource is None:
        raise GcpError("NOT_FOUND", f"The resource '{path}' was not found")
    return resource


def remove(world: World, service: str, path: str) -> None:
    """Forget a thing, if it is there."""
    world.state(Store).resources.pop((service, path), None)


def within(world: World, service: str, prefix: str, kind: str = "") -> list[Resource]:
    """The things of one kind (default: all) whose paths start so, by path."""
    return sorted(
        (
            resource
            for (owner, path), resource in world.state(Store).resources.items()
            if owner == service and path.startswith(prefix) and kind in ("", resource.kind)
        ),
        key=lambda resource: resource.path,
    )


def link(path: str) -> str:
    """The full URL by which compute names a thing."""
    return f"{_ROOT}{path}"


def path_of(reference: str, default_project: str = "") -> str:
    """The path in a URL, full or partial; a bare global/... or zones/... is of the default project."""
    text = reference.partition("/compute/v1/")[2] or reference.removeprefix(_ROOT)
    if text.startswith(("global/", "regions/", "zones/")) and default_project:
        return f"projects/{default_project}/{text}"
    return text


def identify(world: World, document: dict[str, Any], path: str, kind: str) -> dict[str, Any]:
    """Give a document of compute what its service fills in: id, kind, creationTimestamp, selfLink."""
    state = world.state(Store)
    number = zlib.crc32(path.encode()) * 10**9 + next(state.numbers)
    document.update(
        id=str(number),
        kind=kind,
        name=path.rpartition("/")[2],
        creationTimestamp=as_datetime(world.now()).isoformat(timespec="milliseconds"),
        selfLink=link(path),
    )
    return document


@inventory
def things(world: World) -> Iterator[Entry]:
    """Everything kept here."""
    for resource in world.state(Store).resources.values():
        yield Entry(resource.service, resource.kind, resource.path, resource.pending)
