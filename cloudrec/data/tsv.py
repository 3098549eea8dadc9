"""Criteo TSV, one chunk of whole lines at a time: from bytes to arrays, and to the lines that are no good.

A line is a label (0 or 1), 13 integers and 26 categories of up to 8 hexadecimal digits, separated by tabs; integers
and categories may be empty. `_LINE` is the grammar. Polars parses; it is laxer than the grammar in a few places
(it takes `+5`, ` 5` and blank lines), so a chunk goes to Polars as it is only when it cannot contain such a case,
and otherwise without the lines that the grammar refuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

LABEL = "label"
INTEGERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
COLUMNS = (LABEL, *INTEGERS, *CATEGORIES)
LONGEST_LINE = 4096  # bytes; a good line has at most about 600 (more only with leading zeros)
_TABS = len(COLUMNS) - 1
_SCHEMA = {name: pl.Int64 if name in INTEGERS else pl.String for name in COLUMNS}
_INTEGER = re.compile(rb"-?\d+")
_CATEGORY = re.compile(rb"[0-9a-fA-F]{0,8}")
_LINE = re.compile(rb"[01](?:\t(?:-?\d+)?){13}(?:\t[0-9a-fA-F]{0,8}){26}")
_LONG_INTEGER = re.compile(rb"\d{19}")
_INT64 = range(-(1 << 63), 1 << 63)
_SHOWN = 40  # characters of a bad value


class Chunk(NamedTuple):
    """Whole lines of one file."""

    text: bytes  # ends with a newline
    first_line: int  # in its file, counted from 1
    first_row: int  # the first line's number over all files, counted from 0
    lines: int


class BadLine(NamedTuple):
    """A line that was skipped."""

    line: int  # in its file, counted from 1
    reason: str
    value: str  # shortened


class Parsed(NamedTuple):
    """The good rows of a chunk."""

    labels: npt.NDArray[np.uint8]  # [rows]
    dense: npt.NDArray[np.float32]  # [rows, 13], transformed
    codes: npt.NDArray[np.uint32]  # [26, rows], 0 where missing
    missing: npt.NDArray[np.bool_]  # [26, rows]
    rows: (
        npt.NDArray[np.int64] | None
    )  # [rows]: index of each row's line in the chunk; None: all lines are good
    bad: list[BadLine]


def parse(chunk: Chunk) -> Parsed:
    """Parse a chunk; lines that are no good are left out and reported."""
    text = chunk.text.replace(b"\r\n", b"\n") if b"\r" in chunk.text else chunk.text
    if _looks_clean(text, chunk.lines):
        parsed = _parse_clean(text, chunk.lines)
        if parsed is not None:
            return parsed
    return _parse_doubtful(text, chunk)


def select(parsed: Parsed, chosen: npt.NDArray[np.intp]) -> Parsed:
    """Return some of the rows; the bad lines stay behind."""
    return Parsed(
        parsed.labels[chosen],
        parsed.dense[chosen],
        parsed.codes[:, chosen],
        parsed.missing[:, chosen],
        None,
        [],
    )


def _looks_clean(text: bytes, lines: int) -> bool:
    """Tell whether Polars and the grammar agree about this text, but for what `_parse_clean` checks."""
    if not text.isascii() or any(odd in text for odd in (b"\0", b"\r", b" ", b"+")):
        return False
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    longest = np.diff(ends, prepend=-1).max() - 1
    return int(np.count_nonzero(characters == ord("\t"))) == _TABS * lines and int(longest) <= LONGEST_LINE


def _parse_doubtful(text: bytes, chunk: Chunk) -> Parsed:
    good, rows, bad = [], [], []
    for index, line in enumerate(text.split(b"\n")[: chunk.lines]):
        if _is_good(line):
            good.append(line)
            rows.append(index)
        else:
            bad.append(BadLine(chunk.first_line + index, *explain(line)))
    parsed = _parse_clean(b"".join(line + b"\n" for line in good), len(good))
    if parsed is None:  # the grammar and Polars disagree: a fault of ours, not of the data
        raise AssertionError(f"lines near {chunk.first_line} fit the grammar, but Polars refuses them")
    return parsed._replace(rows=np.array(rows, np.int64), bad=bad)


def _is_good(line: bytes) -> bool:
    if len(line) > LONGEST_LINE or _LINE.fullmatch(line) is None:
        return False
    return _LONG_INTEGER.search(line) is None or all(
        not field or int(field) in _INT64 for field in line.split(b"\t")[1:14]
    )


def explain(line: bytes) -> tuple[str, str]:
    """Return why a line is no good, and the value that is wrong."""
    if len(line) > LONGEST_LINE:
        return f"a line longer than {LONGEST_LINE:,} bytes", _shown(line)
    fields = line.split(b"\t")
    if b"\0" in line:
        return "a NUL byte", _shown(line)
    if not line.isascii():
        field = next(f for f in fields if not f.isascii())
        return "a byte that is not ASCII", _shown(field)
    if len(fields) != len(COLUMNS):
        return f"{len(fields)} columns instead of {len(COLUMNS)}", _shown(line)
    if fields[0] not in (b"0", b"1"):
        return "the label is not 0 or 1", _shown(fields[0])
    for name, field in zip(INTEGERS, fields[1:14], strict=True):
        if field and _INTEGER.fullmatch(field) is None:
            return f"{name} is not an integer", _shown(field)
        if field and int(field) not in _INT64:
            return f"{name} does not fit 64 bits", _shown(field)
    for name, field in zip(CATEGORIES, fields[14:], strict=True):
        if _CATEGORY.fullmatch(field) is None:
            return f"{name} is not up to 8 hexadecimal digits", _shown(field)
    return "not a row", _shown(line)


def _shown(value: bytes) -> str:
    text = value[: _SHOWN + 1].decode("ascii", "backslashreplace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _parse_clean(text: bytes, lines: int) -> Parsed | None:
    """Parse lines that are thought to be good; None when one of them is not."""
    if not lines:
        return _empty()
    try:
        frame = pl.read_csv(text, has_header=False, separator="\t", quote_char=None, schema=_SCHEMA)
    except pl.exceptions.PolarsError:
        return None
    if frame.height != lines:
        return None
    labels = np.empty(lines, np.uint8)
    dense = np.empty((lines, len(INTEGERS)), np.float32)
    codes = np.empty((len(CATEGORIES), lines), np.uint32)
    missing = np.zeros((len(CATEGORIES), lines), np.bool_)
    start = 0
    for batch in frame.to_arrow(compat_level=pl.CompatLevel.newest()).to_batches():
        rows = slice(start, start + batch.num_rows)
        start = rows.stop
        if not _read_labels(batch.column(0), labels[rows]):
            return None
        _read_integers(batch.columns[1:14], dense[rows])
        for feature, column in enumerate(batch.columns[14:]):
            if not _read_category(column, codes[feature, rows], missing[feature, rows]):
                return None
    return Parsed(labels, dense, codes, missing, None, [])


def _empty() -> Parsed:
    shape = (len(CATEGORIES), 0)
    return Parsed(
        np.empty(0, np.uint8),
        np.empty((0, len(INTEGERS)), np.float32),
        np.empty(shape, np.uint32),
        np.empty(shape, np.bool_),
        None,
        [],
    )


def _read_labels(column: pa.Array, out: npt.NDArray[np.uint8]) -> bool:
    views = _views(column)
    if column.null_count or np.any(views[:, 0] != 1):
        return False
    np.subtract(views[:, 1] & 0xFF, ord("0"), out=out, casting="unsafe")
    return bool(np.all(out <= 1))


def _read_integers(columns: list[pa.Array], out: npt.NDArray[np.float32]) -> None:
    """Write log1p(max(value, 0)) of each column, 0 where missing, into [rows, 13]."""
    block = np.empty((len(columns), len(out)), np.float32)
    for values, column in zip(block, columns, strict=True):
        data = column.buffers()[1]
        ints = np.frombuffer(data, np.int64, len(column), column.offset * 8)
        np.maximum(ints, 0, out=values, casting="unsafe")
        if column.null_count:
            values[_nulls(column)] = 0.0
    np.log1p(block, out=block)
    out[...] = block.T


def _read_category(column: pa.Array, out: npt.NDArray[np.uint32], missing: npt.NDArray[np.bool_]) -> bool:
    """Write the number that each text of hexadecimal digits stands for; False when one is no such text.

    A view of a short text is its length (4 bytes) and then the text itself, padded with zeros. Eight digits are
    read as one 64-bit word, of which each byte is turned into its value at once.
    """
    views = _views(column)
    lengths = views[:, 0]
    if column.null_count:
        missing[...] = _nulls(column)
    if np.any((lengths != 8) & ~missing):  # noqa: PLR2004 - digits of a full code
        return _read_short_category(column, out, missing)
    words = np.ascontiguousarray(views[:, 1:3]).view(np.uint64)[:, 0]
    if column.null_count:
        words[missing] = _ZEROS
    if not _are_hexadecimal(words):
        return False
    out[...] = _from_hexadecimal(words)
    return True


def _read_short_category(
    column: pa.Array, out: npt.NDArray[np.uint32], missing: npt.NDArray[np.bool_]
) -> bool:
    texts = column.to_pylist()
    try:
        values = [int(text, 16) if text else 0 for text in texts]
    except ValueError:
        return False
    if any(text is not None and len(text) > 8 for text in texts):  # noqa: PLR2004 - digits of a full code
        return False
    out[...] = values
    missing[...] = [not text for text in texts]
    return True


_ZEROS = np.uint64(0x3030303030303030)  # the text 00000000


def _are_hexadecimal(words: npt.NDArray[np.uint64]) -> bool:
    """Tell whether every byte of every word is one of 0-9, a-f, A-F. The bytes are ASCII."""
    high = np.uint64(0x8080808080808080)
    ones = np.uint64(0x0101010101010101)
    lower = words | np.uint64(0x2020202020202020)
    # Adding 0x80 - limit to a byte below 0x80 sets its high bit when the byte reaches the limit.
    digit = (words + (0x80 - 0x30) * ones) & ~(words + (0x80 - 0x3A) * ones)
    letter = (lower + (0x80 - 0x61) * ones) & ~(lower + (0x80 - 0x67) * ones)
    return bool(np.all(((digit | letter) & high) == high))


def _from_hexadecimal(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Turn eight digits, first digit in the lowest byte, into the number they stand for."""
    letters = (words >> np.uint64(6)) & np.uint64(0x0101010101010101)
    digits = (words & np.uint64(0x0F0F0F0F0F0F0F0F)) + letters * np.uint64(9)
    pairs = ((digits << np.uint64(4)) | (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    quads = (pairs | (pairs >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    return (quads | (quads >> np.uint64(16))).astype(np.uint32).byteswap()


def _views(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Return a string column's views as [rows, 4] words."""
    return np.frombuffer(column.buffers()[1], np.uint32, len(column) * 4, column.offset * 16).reshape(-1, 4)


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    bits = np.frombuffer(column.buffers()[0], np.uint8)
    valid = np.unpackbits(bits, bitorder="little", count=column.offset + len(column))[column.offset :]
    return valid == 0
