"""Removing what no version needs, without harm to readers and other publishers."""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError
from trainer.serving.publication.format import DATA, PublicationError, manifest_name, written_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from cloudrec_contract.objectstore.base import ObjectStore
    from trainer.checkpoint.store.base import Store
    from trainer.serving.publication.format import PublicationManifest
    from trainer.serving.publication.reader import PublicationReader

_LOG = logging.getLogger(__name__)
_LOCK = ".publishing"


def remove_old(store: Store, reader: PublicationReader, *, keep: int | None) -> None:
    """Remove old versions, and the remains of publishers that died or lost; errors are warnings.

    Args:
        store: of the publication.
        reader: of the same.
        keep: the newest versions that can still be loaded, with the versions that they are made from; None
            for all.
    """
    try:
        _remove_old(store, reader, keep)
    except CheckpointError as error:
        _LOG.warning("an old version could not be removed, which costs space only: %s", error)


@contextmanager
def tidied(objects: ObjectStore) -> Iterator[None]:
    """Remove the invisible remains of dead writers of a folder, unless another publisher writes there now."""
    marker = objects.local_file("lock")
    if marker is None:  # a bucket removes its own
        yield
        return
    descriptor = None
    with suppress(OSError):  # of a file system without locks, or one that is full: the publisher says so
        marker.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(marker.parent / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if descriptor is not None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                objects.tidy()
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove_old(store: Store, reader: PublicationReader, keep: int | None) -> None:
    numbers = reader.versions.numbers()
    kept = set(numbers) if keep is None else _needed(reader, numbers[-keep:])
    # Manifests first: a crash in between must not leave one whose files are gone.
    store.remove([manifest_name(number) for number in numbers if number not in kept])
    doubtful = _doubtful(store.sizes(DATA), kept, last=max(numbers, default=0))
    if doubtful:
        named = set[str]()
        for number in sorted(kept):
            named |= reader.versions.manifest(number).objects
        store.remove([name for name in doubtful if name not in named])


def _doubtful(names: Iterable[str], kept: Collection[int], *, last: int) -> list[str]:
    """Return the objects that may be of no use: of versions that are gone, or that have two writers.

    The number of a version that exists is taken: another process that wrote for it has lost, or is dead.
    """
    found: dict[int, dict[str, list[str]]] = {}
    for name in names:
        number = written_for(name)
        if number is not None and number <= last:
            writer = name.split("/", 2)[1]
            found.setdefault(number, {}).setdefault(writer, []).append(name)
    return [
        name
        for number, writers in found.items()
        if number not in kept or len(writers) > 1
        for its in writers.values()
        for name in its
    ]


def _needed(reader: PublicationReader, numbers: list[int]) -> set[int]:
    """Return these versions and those that they are made from."""
    found = set[int]()
    for number in reversed(numbers):
        manifest: PublicationManifest | None = reader.versions.manifest(number)
        while manifest is not None and manifest.version not in found:
            found.add(manifest.version)
            if manifest.full or manifest.parent is None:
                break
            manifest = _earlier(reader, manifest.parent.version)
    return found


def _earlier(reader: PublicationReader, number: int) -> PublicationManifest | None:
    try:
        return reader.versions.manifest(number)
    except PublicationError:
        return None
