"""Verification of a prepared dataset: dataset.json itself, and its files against it."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.data import require_extra
from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import AGAIN as _AGAIN
from cloudrec.errors import DataError
from cloudrec_contract import features as schemas

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cloudrec.data.format.encoding import Encoding

_SMALL = 128  # bytes of an .npy file without content
_LAYOUT = {
    "labels": "|u1",
    "dense": "<f4",
    "sparse": "<i4",
    "offsets": "<i8",
    "values": "<i4",
    "weights": "<f4",
    "value_weights": "<f4",
}


@dataclass(frozen=True, kw_only=True)
class _Features:
    """What the arrays of a dataset must be like."""

    dense: int
    single: Mapping[str, int]  # the rows of the table of each feature with one id a row
    lists: Mapping[str, int]  # and of each feature with lists
    managed: tuple[str, ...]  # the features whose ids are hashes
    may_lack: tuple[bool, ...]  # for each of several labels whether a row may lack it; empty for one label

    def dtype(self, kind: str) -> str:
        """Return the type of an array; ids have 64 bits if some are hashes."""
        return "<i8" if self.managed and kind in ("sparse", "values") else _LAYOUT[kind]

    def shape(self, kind: str, rows: int) -> tuple[int, ...] | None:
        """Return the shape of an array; None if only its number of dimensions is known."""
        shapes: dict[str, tuple[int, ...]] = {
            "labels": (len(self.may_lack), rows) if self.may_lack else (rows,),
            "weights": (rows,),
            "dense": (rows, self.dense),
            "sparse": (len(self.single), rows),
            "offsets": (len(self.lists), rows + 1),
        }
        return shapes.get(kind)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The result of a verification."""

    path: str
    deep: bool
    rows: int
    files: int
    bytes: int
    digest: str
    encoding_digest: str | None  # None: unknown, since schema version 1 does not contain it

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def check(path: Path, *, deep: bool = False) -> CheckReport:
    """Verify a dataset: schema, digests, sizes, shapes; with `deep` also checksums and the ranges of values.

    Raises:
        DataError: a check failed; the message names the first one.
    """
    require_extra()
    content = manifest.load(path)
    try:
        return _check(path, content, deep=deep)
    except (KeyError, TypeError, AttributeError) as error:  # its digest is right, but its schema is not
        raise DataError(f"{path / manifest.NAME} is malformed: {error!r}", remedy=_AGAIN) from error


def _check(path: Path, content: Mapping[str, Any], *, deep: bool) -> CheckReport:
    encoding = encodings.of_dataset(content, path / manifest.NAME)
    features = _features(content, path / manifest.NAME)
    vocabulary = [] if encoding is None else encoding.files
    files = len(vocabulary)
    size = sum(file.bytes for file in vocabulary)
    for name, split in content["splits"].items():
        rows = 0
        for shard in split["shards"]:
            for kind, file in shard["files"].items():
                _check_file(path, file, kind, _whole(shard["rows"]), features, deep=deep)
                files += 1
                size += _whole(file["bytes"])
            if deep and features.lists:
                _check_lists(path, shard["files"], features)
            rows += _whole(shard["rows"])
        if rows != split["rows"]:
            raise DataError(
                f"{path}: the shards of {name} hold {rows:,} rows, not {split['rows']:,}", remedy=_AGAIN
            )
    if encoding is not None:
        _check_vocabulary(path, encoding, deep=deep)
    return CheckReport(
        path=str(path),
        deep=deep,
        rows=_whole(content["rows"]),
        files=files,
        bytes=size,
        digest=content["digest"],
        encoding_digest=None if encoding is None else encoding.digest,
    )


def _whole(value: object) -> int:
    """Return a number of dataset.json; TypeError, which `check` reports, if it is none."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _features(content: Mapping[str, Any], where: Path) -> _Features:
    limits = {name: _whole(rows) for name, rows in content["num_embeddings_per_feature"].items()}
    lists: set[str] = set()
    managed: tuple[str, ...] = ()
    may_lack: tuple[bool, ...] = ()
    if "features" in content:
        try:
            schema = schemas.parse(content["features"])
            lists = {each.name for each in schema.lists}
            managed = schema.managed
            limits |= dict.fromkeys(managed, schemas.HASH_LIMIT)
            may_lack = tuple(each.missing for each in schema.labels) if schema.tasks else ()
        except schemas.SchemaError as error:
            raise DataError(f"{where}: its feature schema is malformed: {error}", remedy=_AGAIN) from error
    return _Features(
        dense=len(content["dense_features"]),
        single={name: limits[name] for name in content["sparse_features"] if name not in lists},
        lists={name: limits[name] for name in content["sparse_features"] if name in lists},
        managed=managed,
        may_lack=may_lack,
    )


def _check_lists(folder: Path, files: Mapping[str, Any], features: _Features) -> None:
    """Check that offsets ascend from 0 to the number of values, and the ids of each feature."""
    import numpy as np  # noqa: PLC0415 - after require_extra, so that its absence is a clear error

    paths = [manifest.file_in(folder, files[kind]["path"]) for kind in ("offsets", "values")]
    offsets, values = (np.load(path) for path in paths)
    flat = offsets.reshape(-1)
    if flat[0] != 0 or flat[-1] != len(values) or (np.diff(flat) < 0).any():
        raise DataError(f"{paths[0]} does not fit {paths[1].name}", remedy=_AGAIN)
    if "value_weights" in files:
        path = manifest.file_in(folder, files["value_weights"]["path"])
        if len(np.load(path)) != len(values):
            raise DataError(f"{path} does not fit {paths[1].name}", remedy=_AGAIN)
    for (name, limit), ends in zip(features.lists.items(), offsets, strict=True):
        ids = values[ends[0] : ends[-1]]
        if ids.size and (ids.min() < 0 or ids.max() >= limit):
            raise DataError(f"{paths[1]}: an id of {name} is outside 0..{limit - 1}", remedy=_AGAIN)


def _check_vocabulary(folder: Path, encoding: Encoding, *, deep: bool) -> None:
    from cloudrec.data.vocabulary import check_bytes  # noqa: PLC0415 - after require_extra: it loads numpy

    for table in encoding.tables:
        if table.file is None:
            continue
        path = manifest.file_in(folder, table.file.path)
        _check_size(path, table.file.bytes)
        if deep:
            check_bytes(path, table, path.read_bytes())

    for file in () if encoding.growth is None else encoding.growth.files.values():
        path = manifest.file_in(folder, file.path)
        _check_size(path, file.bytes)
        if deep and (crc := f"{zlib.crc32(path.read_bytes()):08x}") != file.crc32:
            raise DataError(f"{path} is damaged: its crc32 is {crc}, not {file.crc32}", remedy=_AGAIN)


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path} is missing", remedy=_AGAIN) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}", remedy=_AGAIN) from error
    if size != expected:
        raise DataError(f"{path} has {size:,} bytes, not {expected:,}", remedy=_AGAIN)


def _check_file(
    folder: Path, file: Mapping[str, Any], kind: str, rows: int, features: _Features, *, deep: bool
) -> None:
    import numpy as np  # noqa: PLC0415 - after require_extra, so that its absence is a clear error

    path = manifest.file_in(folder, file["path"])
    _check_size(path, file["bytes"])
    try:
        array = np.load(path, mmap_mode="r" if file["bytes"] > _SMALL else None)  # an empty one has no map
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}", remedy=_AGAIN) from error
    shape = features.shape(kind, rows) or (array.size,)
    if array.dtype.str != features.dtype(kind) or array.shape != shape:
        raise DataError(
            f"{path} holds {array.dtype} {array.shape}, not {features.dtype(kind)} {shape}", remedy=_AGAIN
        )
    if deep:
        _check_content(path, file["crc32"], kind, array, features)


def _check_answers(path: Path, kind: str, array: Any, features: _Features) -> None:  # noqa: ANN401 - as below
    """Check that labels are 0 or 1, or missing where they may be, and that weights are finite and from 0."""
    import numpy as np  # noqa: PLC0415 - as below

    if kind == "weights" and not (np.isfinite(array) & (array >= 0)).all():
        raise DataError(f"{path} holds a weight that is no finite number from 0", remedy=_AGAIN)
    if kind == "labels":
        for labels, may_lack in zip(np.atleast_2d(array), features.may_lack or (False,), strict=True):
            if not ((labels <= 1) | (may_lack & (labels == schemas.MISSING_LABEL))).all():
                raise DataError(f"{path} holds a label other than 0 and 1", remedy=_AGAIN)


def _check_content(path: Path, crc32: str, kind: str, array: Any, features: _Features) -> None:  # noqa: ANN401 - numpy is not imported at the top
    import numpy as np  # noqa: PLC0415 - as above
    from isal import isal_zlib  # noqa: PLC0415 - as above

    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            crc = isal_zlib.crc32(block, crc)
    if f"{crc:08x}" != crc32:
        raise DataError(f"{path} is damaged: its crc32 is {crc:08x}, not {crc32}", remedy=_AGAIN)
    if kind in ("labels", "weights"):
        _check_answers(path, kind, array, features)
    if kind in ("dense", "value_weights") and not np.isfinite(array).all():
        raise DataError(f"{path} holds a value that is not finite", remedy=_AGAIN)
    if kind == "sparse":
        for ids, (name, limit) in zip(array, features.single.items(), strict=True):
            if ids.size and (ids.min() < 0 or ids.max() >= limit):
                raise DataError(f"{path}: an id of {name} is outside 0..{limit - 1}", remedy=_AGAIN)
