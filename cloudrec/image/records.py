"""The record of the images that were built and pushed, CLOUDREC_HOME/images.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import StorageError
from cloudrec.home import locked, make_private, read_text, storage_error, write_atomically
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.home import Home

_SCHEMA_VERSION = 1
_LOCK_WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image that a builder has on this machine.

    Attributes:
        name: its name in the builder, with its tag.
        fabric: the Dockerfile's target, such as plain or efa.
        device: cuda or cpu.
        version: the version of cloudrec in it.
        builder: docker, podman or buildah.
        built: the time of the build, in UTC.
    """

    name: str
    fabric: str
    device: str
    version: str
    builder: str
    built: str


@dataclass(frozen=True, kw_only=True)
class PushedImage:
    """An image in a registry.

    Attributes:
        repository: the registry's address and the repository's name, without a tag.
        digest: the digest of its manifest, as sha256:...
        tag: its tag. Manifests use the digest, since a tag can be moved to another image.
        fabric: the Dockerfile's target, such as plain or efa.
        device: cuda or cpu.
        version: the version of cloudrec in it.
        cluster: the cluster of the repository; empty for a repository that the user named.
        pushed: the time of the push, in UTC.
    """

    repository: str
    digest: str
    tag: str
    fabric: str
    device: str
    version: str
    cluster: str
    pushed: str

    @property
    def reference(self) -> str:
        """The image reference for manifests: repository and digest."""
        return f"{self.repository}@{self.digest}"


def newest(home: Home, repository: str) -> PushedImage | None:
    """Return the image that was pushed last to a repository from this machine; None if none was.

    Args:
        home: CLOUDREC_HOME.
        repository: the registry's address and the repository's name, without a tag.

    Raises:
        StorageError: images.json is damaged.
    """
    there = [image for image in pushed(home) if image.repository == repository]
    return there[-1] if there else None


def pushed(home: Home) -> list[PushedImage]:
    """Return all images that were pushed, the newest last."""
    return list(_read(_path(home)).pushed)


def built(home: Home) -> list[BuiltImage]:
    """Return all images that were built, the newest last; a name is that of the newest image with it."""
    return list(_read(_path(home)).built)


def note_built(home: Home, image: BuiltImage) -> None:
    """Record an image that was built."""

    def change(images: _Images) -> _Images:
        others = (each for each in images.built if each.name != image.name)
        return replace(images, built=(*others, image))

    _change(home, change)


def note_pushed(home: Home, image: PushedImage) -> None:
    """Record an image that was pushed, as the newest of its repository."""

    def change(images: _Images) -> _Images:
        # A second push of the same content replaces the entry, so the newest one stays last.
        others = (each for each in images.pushed if each.reference != image.reference)
        return replace(images, pushed=(*others, image))

    _change(home, change)


@dataclass(frozen=True, kw_only=True)
class _Images:
    """The content of images.json."""

    schema_version: int = _SCHEMA_VERSION
    built: tuple[BuiltImage, ...] = ()
    pushed: tuple[PushedImage, ...] = ()


def _change(home: Home, change: Callable[[_Images], _Images]) -> None:
    path = _path(home)
    make_private(home.root)
    # Two commands may build at the same time, and each one rewrites the whole file.
    with locked(home.locks / "images.lock", what="the list of images", wait_s=_LOCK_WAIT_S):
        write_atomically(path, json.dumps(asdict(change(_read(path))), indent=1) + "\n")


def _path(home: Home) -> Path:
    return home.root / "images.json"


def _read(path: Path) -> _Images:
    try:
        content = safe_object(read_text(path))
        if content.get("schema_version") != _SCHEMA_VERSION:
            raise StorageError(
                f"{path} has schema version {content.get('schema_version')!r}, not {_SCHEMA_VERSION}",
                remedy="use the cloudrec that wrote it, or remove it and push the image again",
            )
        return record_of(_Images, content)
    except FileNotFoundError:
        return _Images()
    except OSError as error:
        raise storage_error(path, error) from error
    except ValueError as error:
        raise StorageError(
            f"{path} is damaged: {error}", remedy="remove it, and push the image again: `cloudrec image push`"
        ) from error
