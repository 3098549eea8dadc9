"""The record of the images that were built and pushed, CLOUDREC_HOME/images.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import StorageError
from cloudrec.home import locked, make_private, read_text, storage_error, write_atomically
from cloudrec_contract.safe_json import safe_object

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
    return [PushedImage(**each) for each in _read(_path(home))["pushed"]]


def built(home: Home) -> list[BuiltImage]:
    """Return all images that were built, the newest last; a name is that of the newest image with it."""
    return [BuiltImage(**each) for each in _read(_path(home))["built"]]


def note_built(home: Home, image: BuiltImage) -> None:
    """Record an image that was built."""

    def change(content: dict[str, Any]) -> None:
        content["built"] = [each for each in content["built"] if each["name"] != image.name] + [asdict(image)]

    _change(home, change)


def note_pushed(home: Home, image: PushedImage) -> None:
    """Record an image that was pushed, as the newest of its repository."""

    def change(content: dict[str, Any]) -> None:
        # A second push of the same content replaces the entry, so the newest one stays last.
        same = {"repository": image.repository, "digest": image.digest}
        kept = [each for each in content["pushed"] if not same.items() <= each.items()]
        content["pushed"] = [*kept, asdict(image)]

    _change(home, change)


def _change(home: Home, change: Callable[[dict[str, Any]], None]) -> None:
    path = _path(home)
    make_private(home.root)
    # Two commands may build at the same time, and each one rewrites the whole file.
    with locked(home.locks / "images.lock", what="the list of images", wait_s=_LOCK_WAIT_S):
        content = _read(path)
        change(content)
        write_atomically(path, json.dumps(content, indent=1) + "\n")


def _path(home: Home) -> Path:
    return home.root / "images.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = safe_object(read_text(path))
    except FileNotFoundError:
        return {"schema_version": _SCHEMA_VERSION, "built": [], "pushed": []}
    except OSError as error:
        raise storage_error(path, error) from error
    except ValueError as error:
        raise StorageError(
            f"{path} is damaged: {error}", remedy="remove it, and push the image again: `cloudrec image push`"
        ) from error
    if content.get("schema_version") != _SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema version {content.get('schema_version')!r}, not {_SCHEMA_VERSION}",
            remedy="use the cloudrec that wrote it, or remove it and push the image again",
        )
    return content
