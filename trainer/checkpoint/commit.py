"""`commit.json`: the last file of a checkpoint, and the index of all the others.

    CHECKPOINT_DIR/step-00001234/rank-00000.bin   raw little-endian tensor bytes of one rank
    CHECKPOINT_DIR/step-00001234/commit.json      written last: only then does the checkpoint count

A part is a rectangle of a named global tensor, so that any rank of any world size can find the
rows it wants. torch.distributed.checkpoint was considered: it has no commit across ranks that
survives a crash at any point, no checksums, no fall-back, and names that follow the sharding plan.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Any

from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE_NAME = "commit.json"
FORMAT = "cloudrec-checkpoint"
SCHEMA_VERSION = 1


class DamagedError(CheckpointError):
    """A checkpoint that was committed cannot be trusted any more; an older one may do."""


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a global tensor, and where its bytes are."""

    name: str
    dtype: str  # as torch names it: float32, int64, ...
    shape: tuple[int, ...]  # of the global tensor
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    position: int  # bytes from the start of the file
    length: int  # bytes
    crc32: int


@dataclass(frozen=True, slots=True)
class Commit:
    """All that is known of a committed checkpoint."""

    step: int
    world_size: int
    fingerprint: Mapping[str, Any]  # what the checkpoint belongs to: model sizes, dataset, ...
    extra: Mapping[str, Any]  # the loop's own state
    files: Mapping[str, int]  # name -> bytes
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.files.values())

    def by_name(self) -> dict[str, list[Part]]:
        """The parts of every tensor."""
        named: dict[str, list[Part]] = {}
        for part in self.parts:
            named.setdefault(part.name, []).append(part)
        return named

    def check_complete(self) -> None:
        """Refuse parts that do not cover each tensor exactly: a mistake of whoever sharded it."""
        for name, parts in self.by_name().items():
            kinds = {(part.dtype, part.shape) for part in parts}
            covered = sum(prod(part.sizes) for part in parts)
            starts = {part.offsets for part in parts if prod(part.sizes)}
            whole = prod(parts[0].shape)
            if len(kinds) > 1:
                raise CheckpointError(f"{name}: ranks disagree about its type and shape: {sorted(kinds)}")
            if covered != whole or len(starts) != sum(1 for part in parts if prod(part.sizes)):
                raise CheckpointError(
                    f"{name}: the ranks hold {covered} of its {whole} elements in {len(parts)} parts; "
                    "a shard is missing or held twice"
                )


def write(directory: Path, commit: Commit) -> None:
    """Commit a checkpoint: from the moment of the rename on it counts, whatever happens."""
    document = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **asdict(commit)}
    document["parts"] = [list(asdict(part).values()) for part in commit.parts]
    document = json.loads(json.dumps(document))  # as it will be read: keys are strings, tuples lists
    document["crc32"] = _checksum(document)
    temporary = directory / f"{FILE_NAME}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(directory / FILE_NAME)
    sync_directory(directory)


def read(directory: Path) -> Commit:
    """Read a commit file.

    Raises:
        DamagedError: it is not what was written.
        CheckpointError: it was written by another version.
    """
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise DamagedError(f"{path}: its format is {document['format']!r}, not {FORMAT!r}")
        if document["schema_version"] != SCHEMA_VERSION:
            raise CheckpointError(
                f"{path}: schema_version is {document['schema_version']!r}, this trainer reads "
                f"{SCHEMA_VERSION}; go on with the version that wrote it, or use another checkpoint_dir"
            )
        if document.pop("crc32") != _checksum(document):
            raise DamagedError(f"{path}: its checksum does not fit its contents")
        return _parse(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path}: cannot be read: {error!r}") from error


def sync_directory(directory: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """Where two fingerprints differ, in words; both are compared as JSON would give them back."""
    wanted = json.loads(json.dumps(wanted))
    for key in sorted({*wanted, *found}):
        name = f"{prefix}{key}"
        here, there = wanted.get(key), found.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from differences(here, there, f"{name}.")
        elif here != there:
            yield f"{name} is {there!r} in the checkpoint and {here!r} in this run"


def _parse(document: dict[str, Any]) -> Commit:
    names = [field.name for field in fields(Part)]
    rows = (dict(zip(names, row, strict=True)) for row in document["parts"])
    listed = ("shape", "offsets", "sizes")
    parts = tuple(Part(**{**row, **{key: tuple(row[key]) for key in listed}}) for row in rows)
    kept = {field.name: document[field.name] for field in fields(Commit) if field.name != "parts"}
    return Commit(**kept, parts=parts)


def _checksum(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
