"""A reader of published versions that needs numpy only, so that any server may use it.

    from trainer.serving.publication.reader import PublicationReader

    reader = PublicationReader("s3://bucket/model")
    model = reader.load(reader.newest())            # model.arrays["tables/C1"]: rows as published
    model = reader.load(reader.newest(), model)     # reads what changed since

Every byte that is used is compared with its sha256, and each delta with the version that it was made from. A
loaded model is never changed: a later one shares its unchanged arrays. The others are in memory that no model
uses any more, if there is some (trainer.serving.publication.spare). This module must not import torch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.base.errors import ConfigError
from trainer.serving.document import FILE_NAME, encode_document
from trainer.serving.publication.building import build_array
from trainer.serving.publication.format import (
    VERSIONS,
    PublicationError,
    PublicationManifest,
    version_name,
)
from trainer.serving.publication.pieces import PieceReader
from trainer.serving.publication.routes import VersionList, parse_version
from trainer.serving.publication.spare import SpareArrays
from trainer.serving.publication.summed import SummedStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_THREADS = 4


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version in memory; its arrays are not to be changed.

    Args:
        manifest: what it consists of.
        sha256: of the manifest.
        arrays: `tables/NAME` and `managed/NAME`, [rows, width] and [rows].
    """

    manifest: PublicationManifest
    sha256: str
    arrays: Mapping[str, Array]

    @property
    def name(self) -> str:
        """The version's name."""
        return self.manifest.name


class PublicationReader:
    """Reads the versions of one publication; one thread at a time.

    Args:
        uri: its folder, or a URI in a bucket.

    Raises:
        ConfigError: the URI names no store, or the extra for it is not installed.
    """

    def __init__(self, uri: str) -> None:
        self.pieces = PieceReader(uri)
        self.versions = VersionList(self.pieces)
        self.uri = self.pieces.uri
        self._spare = SpareArrays()

    def newest(self) -> str:
        """Return the name of the newest complete version; PublicationError if there is none."""
        numbers = self.versions.numbers()
        if not numbers:
            raise PublicationError(
                f"{self.uri}: holds no version ({VERSIONS}*.jsonl); publish one with "
                "`python -m trainer.publish`, or give the folder that it writes to"
            )
        return version_name(numbers[-1])

    def load(self, version: str, held: PublishedVersion | None = None) -> PublishedVersion:
        """Return a version.

        Args:
            version: its name, as `newest` returns it.
            held: one that is in memory; only what changed since is read, if the files for that are there.

        Raises:
            ConfigError: this is no name of a version.
            PublicationError: a file is missing, damaged, of a newer format or foreign.
        """
        known = None if held is None else (held.manifest.version, held.sha256)
        route = self.versions.route(parse_version(version), known)
        before: Mapping[str, Array] = {} if held is None else held.arrays

        def build(name: str) -> Array:
            return build_array(self.pieces, self._spare, route, name, before.get(name))

        with ThreadPoolExecutor(_THREADS) as pool:
            arrays = dict(zip(route.target.arrays, pool.map(build, route.target.arrays), strict=True))
        self._spare.settle(arrays)
        self.versions.forget_before(route.target.version)
        return PublishedVersion(route.target, route.sha256, arrays)

    def dense(self, manifest: PublicationManifest) -> dict[str, bytes]:
        """Return the .npy files of the dense part, by parameter."""
        return {
            path.removeprefix("dense/").removesuffix(".npy"): self.pieces.file(piece)
            for path, piece in manifest.files.items()
            if path.startswith("dense/")
        }

    def write_export(self, version: str, folder: Path) -> PublicationManifest:
        """Write a version as an export: the bytes that `python -m trainer.export` would write.

        Holds one array at a time.

        Raises:
            ConfigError: the folder is not empty.
            PublicationError: as `load`.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"out {folder}: is not an empty folder; give a new one")
        route = self.versions.route(parse_version(version))
        written: dict[str, dict[str, Any]] = {}
        for name in route.target.arrays:
            with _file_of(folder, f"{name}.npy", written) as file:
                np.save(file, build_array(self.pieces, SpareArrays(), route, name, None))
        for path, piece in route.target.files.items():
            with _file_of(folder, path, written) as file:
                self.pieces.copy(piece, file)
        files = {path: written[path] for path in route.target.listed}
        temporary = folder / f".{FILE_NAME}.tmp"
        temporary.write_text(encode_document(route.target.export, files), encoding="utf-8")
        temporary.replace(folder / FILE_NAME)
        return route.target


@contextmanager
def _file_of(folder: Path, path: str, written: dict[str, dict[str, Any]]) -> Iterator[SummedStream]:
    """Write a file of an export; its size and sha256 are noted when it is complete."""
    target = folder / _plain(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        stream = SummedStream(file)
        yield stream
    written[path] = {"bytes": stream.size, "sha256": stream.sha256}


def _plain(path: str) -> str:
    """Return a path of a manifest, which its parser has checked to be plain."""
    return path
