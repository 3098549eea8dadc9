"""Verifies a prepared dataset: what dataset.json says, and that the files are what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.data import manifest, require_extra
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LAYOUT = {"labels": "|u1", "dense": "<f4", "sparse": "<i4"}
_AGAIN = "prepare the dataset again, or copy it again from where it was whole"


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was verified."""

    path: str
    deep: bool
    rows: int
    files: int
    bytes: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def check(path: Path, *, deep: bool = False) -> CheckReport:
    """Verify a dataset: schema, digest, sizes, shapes; with `deep` also checksums and the ranges of values.

    Raises:
        DataError: the dataset is not what it says; the first thing found is named.
    """
    require_extra()
    content = manifest.load(path)
    try:
        return _check(path, content, deep=deep)
    except (KeyError, TypeError, AttributeError) as error:  # signed, and yet not of this schema
        raise DataError(f"{path / manifest.NAME} is malformed: {error!r}", remedy=_AGAIN) from error


def _check(path: Path, content: Mapping[str, Any], *, deep: bool) -> CheckReport:
    limits = list(content["num_embeddings_per_feature"].values())
    files = 0
    size = 0
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
    return CheckReport(
        path=str(path),
        deep=deep,
        rows=int(content["rows"]),
        files=files,
        bytes=size,
        digest=content["digest"],
    )


def _check_file(
    folder: Path, file: Mapping[str, Any], kind: str, rows: int, limits: list[int], *, deep: bool
) -> None:
    import numpy as np  # noqa: PLC0415 - after require_extra, so that its absence is told well

    path = folder / file["path"]
    try:
        size = path.stat().st_size
        if size != file["bytes"]:
            raise DataError(f"{path} has {size:,} bytes, not {file['bytes']:,}", remedy=_AGAIN)
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise DataError(f"{path} is missing", remedy=_AGAIN) from None
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
