"""The blobs of each container, and the blocks that no Put Block List has committed yet."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.registry import forgotten
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_RFC1123 = "%a, %d %b %Y %H:%M:%S GMT"


@dataclass(kw_only=True)
class Blob:
    """A block blob, or a directory of a hierarchical namespace.

    Attributes:
        name: its path in the container.
        blocks: ids of its committed blocks, with their data; one block without an id after Put Blob.
        settings: its content headers, by name: Content-Type, Content-MD5, ...
        metadata: what the client sent as x-ms-meta-NAME.
        etag: a new one for each change.
        made_at: when it was created, in virtual seconds.
        changed_at: when it was last changed.
        is_folder: whether it is a directory.
    """

    name: str
    blocks: list[tuple[str, bytes]]
    settings: dict[str, str]
    metadata: dict[str, str]
    etag: str
    made_at: float
    changed_at: float
    is_folder: bool = False

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return sum(len(data) for _, data in self.blocks)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        return b"".join(self._pieces(start, end))

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        position = 0
        for _, data in self.blocks:
            piece = data[max(0, start - position) : max(0, end - position)]
            position += len(data)
            if piece:
                yield piece


@dataclass
class Container:
    """The data of one container, by blobs' names."""

    blobs: dict[str, Blob] = field(default_factory=dict)
    staged: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def below(self, folder: str) -> Iterator[Blob]:
        """Yield everything in a directory and below it."""
        for name, blob in self.blobs.items():
            if name.startswith(f"{folder}/"):
                yield blob


@dataclass
class Blobs:
    """The containers that have data, by their ids in lower case."""

    containers: dict[str, Container] = field(default_factory=dict)
    changes: int = 0x8DE000000000000


def container_of(world: World, id_: str) -> Container:
    """Return the data of the container with this id."""
    return world.state(Blobs).containers.setdefault(id_.lower(), Container())


def new_etag(world: World) -> str:
    """Return an etag that no blob has."""
    known = world.state(Blobs)
    known.changes += 1
    return f'"0x{known.changes:X}"'


def make_folders(world: World, container: Container, name: str) -> None:
    """Make the directories above a name that do not exist yet, as a hierarchical namespace does."""
    parts = name.split("/")[:-1]
    for path in itertools.accumulate(parts, lambda above, each: f"{above}/{each}"):
        if path not in container.blobs:
            put(world, container, path, blocks=[], settings={}, metadata={"hdi_isfolder": "true"})
            container.blobs[path].is_folder = True


def put(
    world: World,
    container: Container,
    name: str,
    *,
    blocks: list[tuple[str, bytes]],
    settings: Mapping[str, str],
    metadata: Mapping[str, str],
) -> Blob:
    """Make a blob, or replace one; its staged blocks are dropped."""
    old, now = container.blobs.get(name), world.now()
    made = Blob(
        name=name,
        blocks=blocks,
        settings=dict(settings),
        metadata=dict(metadata),
        etag=new_etag(world),
        made_at=old.made_at if old else now,
        changed_at=now,
    )
    container.staged.pop(name, None)
    container.blobs[name] = made
    return made


def moment(virtual: float) -> str:
    """Return a virtual time as HTTP's headers have it."""
    return as_datetime(virtual).strftime(_RFC1123)


@forgotten
def forget(world: World, gone: Resource) -> None:
    """Drop the data of a removed container, or of all containers of a removed account."""
    containers = world.state(Blobs).containers
    for key in [key for key in containers if key == gone.key or key.startswith(f"{gone.key}/")]:
        del containers[key]
