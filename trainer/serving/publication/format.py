"""The documents of a publication: one manifest a version, written last.

    versions/00000007.jsonl             the manifest, created conditionally: only then does the version count
    data/00000007.TOKEN/export/...      a full version: an export (trainer.serving.exported)
    data/00000007.TOKEN/changes.bin     a delta: the rows that changed since the parent, and the dense part
    data/00000007.TOKEN/vocabulary/...  the vocabulary, if it is not the parent's

A manifest is two lines of JSON: the document, and the sha256 of the first line's bytes. A version is full, a
delta, or both. It names every object that it needs, some of them of earlier versions. A name has the token
of its writer, so two writers never touch one object. This module must not import torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from cloudrec_contract.objectstore.base import is_name
from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "cloudrec-publication"
SCHEMA_VERSION = 1
VERSIONS = "versions/"
DATA = "data/"
PRECISIONS: Final[Mapping[str, Literal["none", "fp16", "int8", "int4"]]] = {  # quantization in config.json
    "fp32": "none",
    "fp16": "fp16",
    "int8": "int8",
    "int4": "int4",
}
TYPES = ("<f4", "<f2", "|u1", "<i8")  # of an array's elements
ALIGNMENT = 64  # bytes; of what is in changes.bin
_VERSION = re.compile(r"versions/(\d{8,18})\.jsonl")
_WRITTEN = re.compile(r"data/(\d{8,18})\.[0-9a-f]+/.+")
_TOKEN = re.compile(r"[0-9a-f]{8,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**62  # bytes or rows; so that sums of a few stay below what numpy can count
_LONGEST = 1024  # bytes of a name


class PublicationError(CheckpointError):
    """A publication cannot be written or read; the message has the place, the problem and the remedy."""


class ForeignManifestError(PublicationError):
    """A manifest is of a newer version of the format, or of something else."""


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """Some bytes of an object."""

    object: str
    position: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows of an array that differ from the parent version's.

    Args:
        count: how many.
        numbers: their numbers, ascending, as little-endian unsigned integers of 4 bytes, or 8 in arrays of
            more than 2**32 rows; None if there are none.
        values: the rows, in this order; None likewise.
    """

    count: int
    numbers: StoredPiece | None = None
    values: StoredPiece | None = None

    @property
    def bytes(self) -> int:
        """The bytes to read."""
        return sum(piece.bytes for piece in (self.numbers, self.values) if piece is not None)


@dataclass(frozen=True, slots=True)
class PublishedArray:
    """An array [rows] or [rows, width].

    Args:
        dtype: of its elements, as numpy writes it (TYPES).
        shape: its sizes.
        whole: the .npy file with all rows; None if the version is not full.
        change: since the parent version; None if the version is not a delta.
    """

    dtype: str
    shape: tuple[int, ...]
    whole: StoredPiece | None = None
    change: RowChange | None = None

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def number_type(self) -> str:
        """The type of row numbers."""
        return "<u4" if self.shape[0] <= 2**32 else "<u8"

    def fits(self, other: PublishedArray | None) -> bool:
        """Whether rows of the other one can be rows of this one."""
        return other is not None and (self.dtype, self.shape[1:]) == (other.dtype, other.shape[1:])


@dataclass(frozen=True, slots=True)
class ParentVersion:
    """The version before, and the sha256 of its manifest."""

    version: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationManifest:
    """A version.

    Args:
        version: its number.
        token: of its writer.
        created: when, as ISO 8601; for people.
        parent: the version that the delta was made from; None without one.
        full: whether all arrays are there as a whole.
        delta: whether the changes since the parent are there.
        precision: of the tables (PRECISIONS).
        step: of the checkpoint.
        source: what identifies the checkpoint (trainer.publishing.identity).
        found_by: how the changed rows were found; empty if the version is not a delta.
        export: config.json of the export without its files.
        arrays: by name, `tables/NAME` and `managed/NAME`.
        files: the export's other files, by path.
        listed: the paths that config.json lists with their sha256, in its order.
    """

    version: int
    token: str
    created: str
    parent: ParentVersion | None
    full: bool
    delta: bool
    precision: str
    step: int
    source: Mapping[str, Any]
    found_by: str
    export: Mapping[str, Any]
    arrays: Mapping[str, PublishedArray]
    files: Mapping[str, StoredPiece]
    listed: tuple[str, ...]

    @property
    def name(self) -> str:
        """The version's name: its number, with 8 digits."""
        return version_name(self.version)

    @property
    def full_bytes(self) -> int:
        """The bytes to read for the full version; 0 if it is not full."""
        return sum(each.whole.bytes for each in self.arrays.values() if each.whole) if self.full else 0

    @property
    def delta_bytes(self) -> int:
        """The bytes of rows to read to get here from the parent; 0 if the version is not a delta."""
        return sum(each.change.bytes for each in self.arrays.values() if each.change) if self.delta else 0

    @property
    def objects(self) -> set[str]:
        """The name of every object that the version needs, besides its manifest."""
        found = {piece.object for piece in self.files.values()}
        for each in self.arrays.values():
            of_change = (each.change.numbers, each.change.values) if each.change else ()
            found |= {piece.object for piece in (each.whole, *of_change) if piece is not None}
        return found | ({f"{self.folder}/export/config.json"} if self.full else set())

    @property
    def folder(self) -> str:
        """The folder of what its writer wrote."""
        return data_folder(self.version, self.token)


def version_name(number: int) -> str:
    """Return the name of a version."""
    return f"{number:08d}"


def manifest_name(number: int) -> str:
    """Return the name of a version's manifest."""
    return f"{VERSIONS}{version_name(number)}.jsonl"


def number_of(name: str) -> int | None:
    """Return the version that an object is the manifest of; None if it is none."""
    found = _VERSION.fullmatch(name)
    return None if found is None else int(found[1])


def data_folder(number: int, token: str) -> str:
    """Return the folder of what the writer of this token writes for a version."""
    return f"{DATA}{version_name(number)}.{token}"


def written_for(name: str) -> int | None:
    """Return the version that an object was written for; None if it is another object."""
    found = _WRITTEN.fullmatch(name)
    return None if found is None else int(found[1])


def encode_manifest(manifest: PublicationManifest) -> bytes:
    """Return the two lines of a manifest."""
    document = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **asdict(manifest)}
    line = json.dumps(document, separators=(",", ":")).encode()
    return line + b"\n" + json.dumps({"sha256": hashlib.sha256(line).hexdigest()}).encode() + b"\n"


def parse_manifest(where: str, number: int, data: bytes) -> tuple[PublicationManifest, str]:
    """Return a manifest and its sha256; `where` names it in errors.

    Raises:
        PublicationError: it is damaged, of a newer version of the format, or of something else.
    """
    line, _, rest = data.partition(b"\n")
    try:
        document = safe_object(line)
        _check_format(where, document)
        digest = hashlib.sha256(line).hexdigest()
        manifest = _parse(document)
        _check(manifest)
        if safe_object(rest)["sha256"] != digest or manifest.version != number:
            raise ValueError("its sha256 or its number does not fit its contents")  # noqa: TRY301 - as below
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PublicationError(
            f"{where}: damaged: {_reason(error)}; put back a copy, or publish with --full"
        ) from error
    return manifest, digest


def _check_format(where: str, document: Mapping[str, Any]) -> None:
    found, version = document.get("format"), document.get("schema_version")
    if found != FORMAT:
        raise ForeignManifestError(
            f"{where}: its format is {str(found)[:80]!r}, not {FORMAT!r}; give the folder that "
            "`python -m trainer.publish` writes to"
        )
    if version != SCHEMA_VERSION:
        raise ForeignManifestError(
            f"{where}: schema_version is {str(version)[:80]}, this reader reads {SCHEMA_VERSION}; update the "
            "reader, or publish with the version of cloudrec that it has"
        )


def _parse(document: Mapping[str, Any]) -> PublicationManifest:
    parent = document["parent"]
    return PublicationManifest(
        version=_whole(document["version"], "version"),
        token=_text(document["token"]),
        created=_text(document["created"]),
        parent=None
        if parent is None
        else ParentVersion(_whole(parent["version"], "version"), _hash(parent["sha256"])),
        full=_flag(document["full"]),
        delta=_flag(document["delta"]),
        precision=_text(document["precision"]),
        step=_whole(document["step"], "step"),
        source=dict(document["source"]),
        found_by=_text(document["found_by"]),
        export=dict(document["export"]),
        arrays={_plain(name): _array(name, value) for name, value in document["arrays"].items()},
        files={_plain(name): _piece(value) for name, value in document["files"].items()},
        listed=tuple(_plain(path) for path in document["listed"]),
    )


def _array(name: str, value: Mapping[str, Any]) -> PublishedArray:
    dtype, shape = value["dtype"], tuple(_whole(size, "a size") for size in value["shape"])
    if dtype not in TYPES:
        raise ValueError(f"{name} is of the type {dtype!r}; {', '.join(TYPES)} are known")
    if not 1 <= len(shape) <= 2 or min(shape) < 1 or prod(shape) > _LARGEST:  # noqa: PLR2004 - a column or a matrix
        raise ValueError(f"{name} has the sizes {shape}")
    whole, change = value["whole"], value["change"]
    array = PublishedArray(
        dtype,
        shape,
        None if whole is None else _piece(whole),
        None if change is None else _change(change),
    )
    changed = array.change
    if changed is not None:
        numbers, values = (0 if each is None else each.bytes for each in (changed.numbers, changed.values))
        wanted = (changed.count * np.dtype(array.number_type).itemsize, changed.count * array.row_bytes)
        if changed.count > shape[0] or (numbers, values) != wanted:
            raise ValueError(f"{name}: {changed.count} of {shape[0]} rows have {numbers} and {values} bytes")
    if array.whole is not None and not 0 < array.whole.bytes - shape[0] * array.row_bytes <= 2**16:
        raise ValueError(f"{name}: {array.whole.bytes} bytes are no file of the sizes {shape}")
    return array


def _change(value: Mapping[str, Any]) -> RowChange:
    numbers, values = (None if value[key] is None else _piece(value[key]) for key in ("numbers", "values"))
    return RowChange(_whole(value["count"], "count"), numbers, values)


def _piece(value: Mapping[str, Any]) -> StoredPiece:
    name = _plain(value["object"])
    if not name.startswith(DATA):
        raise ValueError(f"the object {name!r} is not in {DATA}")
    position, size = _whole(value["position"], "position"), _whole(value["bytes"], "bytes")
    return StoredPiece(name, position, size, _hash(value["sha256"]))


def _check(manifest: PublicationManifest) -> None:
    if manifest.precision not in PRECISIONS:
        raise ValueError(f"its precision is {manifest.precision!r}; {', '.join(PRECISIONS)} are known")
    if not _TOKEN.fullmatch(manifest.token):
        raise ValueError(f"its token is {manifest.token[:80]!r}")
    if known := set(manifest.listed) - {f"{name}.npy" for name in manifest.arrays} - set(manifest.files):
        raise ValueError(f"config.json lists {min(known)!r}, which it does not have")
    if not (manifest.full or manifest.delta):
        raise ValueError("it is neither full nor a delta")
    if manifest.delta and (manifest.parent is None or manifest.parent.version >= manifest.version):
        raise ValueError("it is a delta without an earlier parent")
    for name, each in manifest.arrays.items():
        if name.partition("/")[0] not in {"tables", "managed"} or name.count("/") != 1:
            raise ValueError(f"the array {name!r} is neither of tables/ nor of managed/")
        if (manifest.full and each.whole is None) or (manifest.delta and each.change is None):
            raise ValueError(f"{name} lacks its rows")


def _plain(name: object) -> str:
    text = _text(name)
    if not is_name(text) or "\\" in text or not text.isprintable() or len(text.encode()) > _LONGEST:
        raise ValueError(f"{text[:80]!r} is no plain name")
    return text


def _whole(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{what} is {str(value)[:40]}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is not a text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{str(value)[:40]} is not true or false")
    return value


def _hash(value: object) -> str:
    text = _text(value)
    if not _SHA256.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no sha256")
    return text


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
