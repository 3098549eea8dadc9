"""All resources of the REST services in one place: each has a service, a collection, a path, a document.

`lag_s` of /_control: {"lists": 10, "tags": 15}, virtual seconds, 0 at the start: lists leave out what is
younger and show what was deleted since; `tags` is for lists over all regions and zones, which are searched by
label. A GET of one resource never lags.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import Entry, inventory, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.gcp.api.world import World

_LAGS = ("lists", "tags")
_ROOT = "https://www.googleapis.com/compute/v1/"


@dataclass
class Resource:
    """One resource: `path` as in projects/P/global/networks/N; `hidden` has what no document shows."""

    service: str
    kind: str
    path: str
    document: dict[str, Any]
    pending: bool = False
    hidden: dict[str, Any] = field(default_factory=dict)
    born: float = 0.0

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass
class Store:
    """The resources by service and path; deleted ones, with the moment; how far lists lag."""

    resources: dict[tuple[str, str], Resource] = field(default_factory=dict)
    gone: list[tuple[float, Resource]] = field(default_factory=list)
    lag: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_LAGS, 0.0))
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


def add(
    world: World, service: str, kind: str, path: str, document: dict[str, Any], *, pending: bool = False
) -> Resource:
    """Add a resource; it replaces the one with its path."""
    resource = Resource(service, kind, path, document, pending, born=world.now())
    world.state(Store).resources[service, path] = resource
    return resource


def find(world: World, service: str, path: str) -> Resource | None:
    """Return the resource with a path; None if there is none."""
    return world.state(Store).resources.get((service, path))


def need(world: World, service: str, path: str) -> Resource:
    """Return the resource with a path; GcpError if there is none."""
    resource = find(world, service, path)
    if resource is None:
        raise GcpError("NOT_FOUND", f"The resource '{path}' was not found")
    return resource


def remove(world: World, service: str, path: str) -> None:
    """Remove a resource, if it exists."""
    state = world.state(Store)
    gone = state.resources.pop((service, path), None)
    kept = world.now() - max(state.lag.values())
    state.gone = [row for row in state.gone if row[0] > kept]
    if gone:
        state.gone.append((world.now(), gone))


def within(world: World, service: str, prefix: str, kind: str = "") -> list[Resource]:
    """Return the resources of one kind (default: all) whose paths have a prefix, by path."""
    return sorted(
        (
            resource
            for (owner, path), resource in world.state(Store).resources.items()
            if owner == service and path.startswith(prefix) and kind in ("", resource.kind)
        ),
        key=lambda resource: resource.path,
    )


def listed(
    world: World, service: str, prefix: str, kind: str = "", *, everywhere: bool = False
) -> list[Resource]:
    """Return what a list shows: the resources as `within`, as far as lists lag."""
    state = world.state(Store)
    # A list that lags misses what is newer than its moment, and still shows what was deleted since.
    moment = world.now() - state.lag["tags" if everywhere else "lists"]
    rows = {row.path: row for row in within(world, service, prefix, kind)}
    found = {path: row for path, row in rows.items() if row.born <= moment}
    for end, row in state.gone:
        is_one = row.service == service and row.path.startswith(prefix) and kind in ("", row.kind)
        if is_one and end > moment and row.path not in rows:
            found[row.path] = row
    return [found[path] for path in sorted(found)]


def link(path: str) -> str:
    """Return the full URL by which compute names a resource."""
    return f"{_ROOT}{path}"


def path_of(reference: str, default_project: str = "") -> str:
    """Return the path in a URL, full or partial; a bare global/... or zones/... is in the default project."""
    text = reference.partition("/compute/v1/")[2] or reference.removeprefix(_ROOT)
    if text.startswith(("global/", "regions/", "zones/")) and default_project:
        return f"projects/{default_project}/{text}"
    return text


def identify(world: World, document: dict[str, Any], path: str, kind: str) -> dict[str, Any]:
    """Fill in what compute adds to a document: id, kind, creationTimestamp, selfLink."""
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
def existing(world: World) -> Iterator[Entry]:
    """Yield every resource of the store."""
    for resource in world.state(Store).resources.values():
        yield Entry(resource.service, resource.kind, resource.path, resource.pending)


def _write_lag(world: World, wishes: Mapping[str, float]) -> None:
    if unknown := sorted(set(wishes) - set(_LAGS)):
        raise ValueError(f"nothing called {', '.join(unknown)} lags; there are: {', '.join(_LAGS)}")
    world.state(Store).lag.update({name: float(seconds) for name, seconds in wishes.items()})


setting("lag_s", read=lambda world: world.state(Store).lag, write=_write_lag)
