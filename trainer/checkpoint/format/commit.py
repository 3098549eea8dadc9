"""The documents of a checkpoint: its commit, written last, and the manifests that it names.

    step-00001234/rank-00000.3.1.bin    one rank's bytes, of save 1 by owner 3 (raw, little-endian)
    step-00001234/rank-00000.3.1.json   its manifest: the parts of the .bin, with positions and checksums
    step-00001234/commit-00000003.json  created last, by owner 3: only then does the checkpoint count

A commit lists layers, each a manifest a rank: first a base, which is either a full checkpoint or the
initial state that every run of this configuration starts from (and is not written), then differentials
that hold the rows touched since the layer before. A later layer's rows replace those of earlier layers.
Layers may be in the folders of earlier steps, so a file is removed only when no kept commit needs it.

A part is a rectangle of a named global tensor, or some rows of one, so that any rank of any world size
can find the rows it needs. torch.distributed.checkpoint is not used: it has no commit across ranks that
survives a crash at any point, no checksums, no fallback and no differentials, and its names depend on the
sharding plan.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Any

from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.base import MissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainer.checkpoint.store.base import Store

FORMAT = "cloudrec-checkpoint"
MANIFEST_FORMAT = "cloudrec-checkpoint-part"
SCHEMA_VERSION = 2


class DamagedError(CheckpointError):
    """A committed checkpoint is damaged; an older one may be intact."""


@dataclass(frozen=True, slots=True)
class SaveId:
    """The unique id of a save, so that files of a dead save are never read as another's."""

    owner: int
    number: int

    def stem(self, step: int, rank: int) -> str:
        """Return the name of a rank's files without .bin or .json."""
        return f"{folder_of(step)}/rank-{rank:05d}.{self}"

    def __str__(self) -> str:
        """Return OWNER.NUMBER, as in the names of its files."""
        return f"{self.owner}.{self.number}"


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows that a part holds of its extent, sorted; see trainer.checkpoint.format.coding."""

    coding: str
    count: int
    position: int
    length: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a global tensor, or some of its rows, and the position of its bytes."""

    name: str
    dtype: str  # as torch names it: float32, int64, ...
    shape: tuple[int, ...]  # of the global tensor
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]  # of the rectangle
    position: int  # bytes from the start of the file
    length: int  # bytes
    crc32: int
    coding: str = "raw"  # or int8; int4 in checkpoints of earlier versions
    rows: PartRows | None = None  # None: all


@dataclass(frozen=True, slots=True)
class ManifestReference:
    """The name of a manifest in a commit, with the size and checksum to check it against."""

    name: str
    bytes: int  # of the .bin beside it
    crc32: int  # of the manifest


@dataclass(frozen=True, slots=True)
class LayerManifest:
    """The file that one rank wrote for one layer, and its parts."""

    file: str
    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed checkpoint without the contents of its manifests."""

    step: int
    owner: int
    number: int  # of the save, among its owner's
    world_size: int
    base: str | None  # the identity of the initial state; None: the first layer is a full checkpoint
    layers: tuple[tuple[ManifestReference, ...], ...]
    fingerprint: Mapping[str, Any]  # must equal that of a run that resumes: model sizes, dataset, ...
    extra: Mapping[str, Any]  # the loop's own state

    @property
    def bytes(self) -> int:
        """The bytes of its last layer: what this save added."""
        return sum(reference.bytes for reference in self.layers[-1])

    @property
    def references(self) -> tuple[ManifestReference, ...]:
        """The manifests of all layers."""
        return tuple(reference for layer in self.layers for reference in layer)

    @property
    def files(self) -> set[str]:
        """Every file that the checkpoint needs besides its commit, by name."""
        names = {reference.name for reference in self.references}
        return names | {data_name(name) for name in names}


def folder_of(step: int) -> str:
    """Return the folder of a step: the part of its names before the first slash."""
    return f"step-{step:08d}"


def commit_name(step: int, owner: int) -> str:
    """Return the name of a run's commit of a step; only this run creates or replaces it."""
    return f"{folder_of(step)}/commit-{owner:08d}.json"


def data_name(manifest: str) -> str:
    """Return the name of the data file that a manifest describes."""
    return f"{manifest.removesuffix('.json')}.bin"


def save_of(manifest: str) -> str:
    """Return the save that wrote a manifest, as OWNER.NUMBER."""
    return manifest.rpartition("/")[2].removesuffix(".json").partition(".")[2]


def encode_commit(commit: Commit) -> bytes:
    """Return a commit as sealed JSON."""
    document = asdict(commit)
    document["layers"] = [[list(asdict(each).values()) for each in layer] for layer in commit.layers]
    return _seal({"format": FORMAT, "schema_version": SCHEMA_VERSION, **document})


def encode_manifest(manifest: LayerManifest) -> bytes:
    """Return a manifest as sealed JSON."""
    document = asdict(manifest)
    document["parts"] = [
        [list(value.values()) if isinstance(value, dict) else value for value in asdict(part).values()]
        for part in manifest.parts
    ]
    return _seal({"format": MANIFEST_FORMAT, "schema_version": SCHEMA_VERSION, **document})


def read_commit(store: Store, name: str) -> Commit:
    """Read a commit.

    Raises:
        DamagedError: it is missing, or its checksum does not match.
        CheckpointError: it was written by another version.
    """
    return parse_commit(_place(store, name), _read(store, name))


def read_manifest(store: Store, reference: ManifestReference) -> LayerManifest:
    """Read a manifest that a commit names; DamagedError if it is missing or its checksum does not match."""
    data, where = _read(store, reference.name), _place(store, reference.name)
    if zlib.crc32(data) != reference.crc32:
        raise DamagedError(f"{where}: its checksum does not fit its contents")
    return parse_manifest(where, data)


def parse_commit(where: str, data: bytes) -> Commit:
    """Parse a commit's bytes; `where` names the file in errors, which are those of `read_commit`."""
    try:
        document = _open(where, data, FORMAT)
        kept = {field.name: document[field.name] for field in fields(Commit)}
        layers = tuple(tuple(ManifestReference(*row) for row in layer) for layer in document["layers"])
        if not layers:
            raise DamagedError(f"{where}: it has no layers")
        commit = Commit(**kept | {"layers": layers})
        _check_commit(commit)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{where}: cannot be read: {error!r}") from error
    return commit


def parse_manifest(where: str, data: bytes) -> LayerManifest:
    """Parse a manifest's bytes; `where` names the file in errors, which are those of `read_manifest`."""
    try:
        document = _open(where, data, MANIFEST_FORMAT)
        parts = tuple(_parse_part(row) for row in document["parts"])
        _check_texts(document["file"])
        _check_counts(document["bytes"])
        return LayerManifest(document["file"], document["bytes"], parts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{where}: cannot be read: {error!r}") from error


def check_complete(parts: Sequence[Part]) -> None:
    """Refuse a layer whose parts do not cover each tensor exactly once, which is an error in the sharding."""
    named: dict[str, list[Part]] = {}
    for part in parts:
        named.setdefault(part.name, []).append(part)
    for name, its in named.items():
        kinds = {(part.dtype, part.shape) for part in its}
        if len(kinds) > 1:
            raise CheckpointError(f"{name}: ranks disagree about its type and shape: {sorted(kinds)}")
        covered = sum(prod(part.sizes) for part in its)
        starts = Counter(part.offsets for part in its if prod(part.sizes))
        if covered != prod(its[0].shape) or any(count > 1 for count in starts.values()):
            raise CheckpointError(
                f"{name}: the ranks hold {covered} of its {prod(its[0].shape)} elements in {len(its)} parts; "
                "a shard is missing or held twice"
            )


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """Yield a sentence for each key in which two fingerprints differ; both are compared as decoded JSON."""
    wanted = json.loads(json.dumps(wanted))  # noqa: TID251 - its own text
    for key in sorted({*wanted, *found}):
        name = f"{prefix}{key}"
        here, there = wanted.get(key), found.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from differences(here, there, f"{name}.")
        elif here != there:
            yield f"{name} is {there!r} in the checkpoint and {here!r} in this run"


def _read(store: Store, name: str) -> bytes:
    try:
        return store.read(name)
    except MissingError as error:
        raise DamagedError(f"{_place(store, name)}: missing") from error


def _place(store: Store, name: str) -> str:
    return f"{store.uri.rstrip('/')}/{name}"


def _seal(document: dict[str, Any]) -> bytes:
    document = json.loads(json.dumps(document))  # noqa: TID251 - as it will be read: keys are strings, tuples lists
    document["crc32"] = _checksum(document)
    return json.dumps(document, separators=(",", ":")).encode()


def _open(where: str, data: bytes, kind: str) -> dict[str, Any]:
    document: dict[str, Any] = safe_object(data, numbers="any")  # NaN is a valid value of a run's own state
    if document["format"] != kind:
        raise DamagedError(f"{where}: its format is {document['format']!r}, not {kind!r}")
    if document["schema_version"] != SCHEMA_VERSION:
        raise CheckpointError(
            f"{where}: schema_version is {document['schema_version']!r}, this trainer reads "
            f"{SCHEMA_VERSION}; continue with the version that wrote it, or use another checkpoint_dir"
        )
    if document.pop("crc32") != _checksum(document):
        raise DamagedError(f"{where}: its checksum does not fit its contents")
    return document


def _parse_part(row: list[Any]) -> Part:
    values = dict(zip([field.name for field in fields(Part)], row, strict=True))
    for key in ("shape", "offsets", "sizes"):
        values[key] = tuple(values[key])
    if values["rows"] is not None:
        values["rows"] = PartRows(*values["rows"])
    part = Part(**values)
    rows = part.rows
    _check_texts(part.name, part.dtype, part.coding, *([] if rows is None else [rows.coding]))
    _check_counts(part.position, part.length, part.crc32, *part.shape, *part.offsets, *part.sizes)
    if rows is not None:
        _check_counts(rows.count, rows.position, rows.length, rows.crc32)
    if not len(part.shape) == len(part.offsets) == len(part.sizes):
        raise ValueError(f"{part.name} is at {part.offsets} of {part.shape}, with {part.sizes}")
    return part


def _check_commit(commit: Commit) -> None:
    """Raise ValueError if a field has another type than those that are written."""
    _check_counts(commit.step, commit.owner, commit.number, commit.world_size)
    for reference in commit.references:
        _check_texts(reference.name)
        _check_counts(reference.bytes, reference.crc32)
    if commit.base is not None:
        _check_texts(commit.base)
    for name, found in (("fingerprint", commit.fingerprint), ("extra", commit.extra)):
        if not isinstance(found, dict):
            raise ValueError(f"{name} is a {type(found).__name__}, not an object")  # noqa: TRY004 - a wrong file


# A manifest has a part for each shard of each tensor, so that these checks are few and plain.
def _check_texts(*values: object) -> None:
    for value in values:
        if type(value) is not str:
            raise ValueError(f"{value!r} is no text")


def _check_counts(*values: object) -> None:
    for value in values:
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!r} is no count")


def _checksum(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
