"""Verification of a prepared dataset: dataset.json itself, and its files against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.data import require_extra
from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import AGAIN as _AGAIN
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cloudrec.data.format.encoding import Encoding

_LAYOUT = {"labels": "|u1", "dense": "<f4", "sparse": "<i4"}


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
    limits = list(content["num_embeddings_per_feature"].values())
    vocabulary = [] if encoding is None else encoding.files
    files = len(vocabulary)
    size = sum(file.bytes for file in vocabulary)
    for name, split in content["splits"].items():
        rows = 0
        for shard in split["shards"]:
            for kind, file in shard["files"].items():
                _check_file(path, file, kind, int(shard["rows"]), limits, deep=deep)
                files += 1
                size += int(file["bytes"])
            rows += int(shard["rows"])
        if rows != split["rows"]:
            raise DataError(
                f"{path}: the shards of {name} hold {rows:,} rows, not {split['rows']:,}", remedy=_AGAIN
            )
    if encoding is not None:
        _check_vocabulary(path, encoding, deep=deep)
    return CheckReport(
        path=str(path),
        deep=deep,
        rows=int(content["rows"]),
        files=files,
        bytes=size,
        digest=content["digest"],
        encoding_digest=None if encoding is None else encoding.digest,
    )


def _check_vocabulary(folder: Path, encoding: Encoding, *, deep: bool) -> None:
    from cloudrec.data.vocabulary import check_bytes  # noqa: PLC0415 - after require_extra: it loads numpy

    for table in encoding.tables:
        if table.file is None:
            continue
        path = manifest.file_in(folder, table.file.path)
        _check_size(path, table.file.bytes)
        if deep:
            check_bytes(path, table, path.read_bytes())


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
    folder: Path, file: Mapping[str, Any], kind: str, rows: int, limits: list[int], *, deep: bool
) -> None:
    import numpy as np  # noqa: PLC0415 - after require_extra, so that its absence is a clear error

    path = manifest.file_in(folder, file["path"])
    _check_size(path, file["bytes"])
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}", remedy=_AGAIN) from error
    shape = {"labels": (rows,), "dense": (rows, 13), "sparse": (len(limits), rows)}[kind]
    if array.dtype.str != _LAYOUT[kind] or array.shape != shape:
        raise DataError(
            f"{path} holds {array.dtype} {array.shape}, not {_LAYOUT[kind]} {shape}", remedy=_AGAIN
        )
    if deep:
        _check_content(path, file["crc32"], kind, array, limits)


def _check_content(path: Path, crc32: str, kind: str, array: Any, limits: list[int]) -> None:  # noqa: ANN401 - numpy is not imported at the top
    import numpy as np  # noqa: PLC0415 - as above
    from isal import isal_zlib  # noqa: PLC0415 - as above

    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            crc = isal_zlib.crc32(block, crc)
    if f"{crc:08x}" != crc32:
        raise DataError(f"{path} is damaged: its crc32 is {crc:08x}, not {crc32}", remedy=_AGAIN)
    if kind == "labels" and array.size and array.max() > 1:
        raise DataError(f"{path} holds a label other than 0 and 1", remedy=_AGAIN)
    if kind == "dense" and not np.isfinite(array).all():
        raise DataError(f"{path} holds a value that is not finite", remedy=_AGAIN)
    if kind == "sparse":
        for number, (ids, limit) in enumerate(zip(array, limits, strict=True), start=1):
            if ids.size and (ids.min() < 0 or ids.max() >= limit):
                raise DataError(f"{path}: an id of C{number} is outside 0..{limit - 1}", remedy=_AGAIN)
