"""Criteo's raw text, read into memory; for small files. `cloudrec data prepare` converts large ones.

A line is a label (0 or 1), 13 whole numbers and 26 categories of hexadecimal digits, separated by
tabs; numbers and categories may be missing. Numbers become log1p(max(x, 0)), missing ones 0, as
`cloudrec data prepare` has it. A category becomes 1 + its value modulo (rows of its table - 1);
0 is for missing ones.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from typing import TYPE_CHECKING

import numpy as np

from trainer.base.errors import ConfigError, DatasetError
from trainer.data.encoding import computed
from trainer.data.source import (
    DENSE_NAMES,
    SPARSE_NAMES,
    ArraySource,
    source_in_memory,
    split_rows,
)
from trainer.data.stream import ShardArrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SUFFIXES = (".tsv", ".tsv.gz", ".txt", ".txt.gz")
MAX_BYTES = 2 << 30  # of all files: their rows are kept in memory, and read at about 0.1M rows/s
_FIELDS = 1 + len(DENSE_NAMES) + len(SPARSE_NAMES)
_MAX_MAGNITUDE = 2**63


def open_tsv(
    files: dict[str, list[Path]], sizes: Sequence[int] | None, *, test_fraction: float
) -> ArraySource:
    """Read `files` by split; without a "test" split, `test_fraction` of the training rows is held out."""
    if sizes is None:
        raise ConfigError(
            "num_embeddings is not set, and raw text does not show how large tables should be; give "
            "--num_embeddings 100000, say, or --num_embeddings_per_feature"
        )
    if len(sizes) != len(SPARSE_NAMES) or min(sizes) < 2:  # noqa: PLR2004 - a row for missing, one for others
        raise ConfigError(
            f"raw text needs {len(SPARSE_NAMES)} tables of 2 rows at least, but the configuration gives "
            f"{len(sizes)}, the smallest of {min(sizes)} rows"
        )
    total = sum(path.stat().st_size for paths in files.values() for path in paths)
    if total > MAX_BYTES:
        raise DatasetError(
            f"{total} bytes of raw text, at most {MAX_BYTES} are read directly; make a prepared dataset of "
            "them with `cloudrec data prepare`"
        )
    read = {split: _read(paths, sizes) for split, paths in files.items()}
    if "test" not in read:
        read["train"], read["test"] = split_rows(read["train"], test_fraction)
    source = source_in_memory({split: [rows] for split, rows in read.items()}, sizes)
    source.checked = True  # every line was
    source.encoding = computed("modulo", 1, source.num_embeddings)
    return source


def _read(paths: Iterable[Path], sizes: Sequence[int]) -> ShardArrays:
    labels, dense, sparse = array("B"), array("d"), array("i")
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        _parse(line, sizes, labels, dense, sparse)
                    except ValueError as error:
                        raise DatasetError(f"{path}:{number}: {error}") from None
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(f"{path}: cannot be read: {error}; copy it again") from error
    values = np.frombuffer(dense, dtype=np.float64).reshape(len(labels), len(DENSE_NAMES))
    ids = np.frombuffer(sparse, dtype=np.int32).reshape(len(labels), len(SPARSE_NAMES))
    return ShardArrays(
        np.frombuffer(labels, dtype=np.uint8),
        np.log1p(np.maximum(values, 0.0)).astype(np.float32),
        np.ascontiguousarray(ids.T),
    )


def _parse(
    line: bytes, sizes: Sequence[int], labels: array[int], dense: array[float], sparse: array[int]
) -> None:
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != _FIELDS:
        raise ValueError(
            f"{len(fields)} fields, not {_FIELDS} (label, 13 numbers, 26 categories, separated by tabs)"
        )
    if fields[0] not in (b"0", b"1"):
        raise ValueError(f"the label is {_show(fields[0])}, not 0 or 1")
    numbers = [_number(name, text) for name, text in zip(DENSE_NAMES, fields[1:14], strict=True)]
    ids = [_id(*each) for each in zip(SPARSE_NAMES, fields[14:], sizes, strict=True)]
    labels.append(fields[0] == b"1")
    dense.extend(numbers)
    sparse.extend(ids)


def _number(name: str, text: bytes) -> float:
    if not text:
        return 0.0
    digits = text[1:] if text.startswith(b"-") else text
    if not digits.isdigit() or abs(value := int(text)) >= _MAX_MAGNITUDE:
        raise ValueError(f"{name} is {_show(text)}, not a whole number of 64 bits")
    return float(value)


def _id(name: str, text: bytes, rows: int) -> int:
    if not text:
        return 0
    if not text.isalnum():  # int() would accept signs, blanks and underscores
        raise ValueError(f"{name} is {_show(text)}, not hexadecimal digits")
    try:
        return 1 + int(text, 16) % (rows - 1)
    except ValueError:
        raise ValueError(f"{name} is {_show(text)}, not hexadecimal digits") from None


def _show(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))
