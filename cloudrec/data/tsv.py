"""Criteo TSV, one chunk of whole lines at a time: from bytes to arrays, and to the lines that are no good.

A line is a label (0 or 1), 13 integers and 26 categories of up to 8 hexadecimal digits, separated by
tabs; integers and categories may be empty. `_LINE` is the grammar.

Numpy finds the tabs and newlines, which settles the number of columns, and reads label and categories at
their places, eight digits in one 64-bit word; Polars parses the integers. Polars is laxer about them than
the grammar (it takes `+5` and ` 5`), so a chunk that may hold such a thing, or that fails in any way, has its
lines held against the grammar one by one, and what is left is parsed again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

LABEL = "label"
INTEGERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
COLUMNS = (LABEL, *INTEGERS, *CATEGORIES)
LONGEST_LINE = 4096  # bytes; a good line has at most about 600 (more only with leading zeros)
_TAB, _NEWLINE = ord("\t"), ord("\n")
_BLOCK = 1024  # rows whose categories are read at once: they fit the processor's cache
_ZEROS = np.uint64(0x3030303030303030)  # the text 00000000
_POLARS_IS_LAX_ABOUT = (b"\r", b" ", b"+")
_INTEGER_COLUMNS = list(range(1, 14))
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
    if text.isascii() and not any(odd in text for odd in _POLARS_IS_LAX_ABOUT):
        parsed = _parse_clean(text, chunk.lines)
        if parsed is not None:
            return parsed
    return _parse_doubtful(text, chunk)


def _parse_doubtful(text: bytes, chunk: Chunk) -> Parsed:
    good, rows, bad = [], [], []
    for index, line in enumerate(text.split(b"\n")[: chunk.lines]):
        if _is_good(line):
            good.append(line)
            rows.append(index)
        else:
            bad.append(BadLine(chunk.first_line + index, *_explain(line)))
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


def _explain(line: bytes) -> tuple[str, str]:
    """Return why a line is no good, and the value that is wrong, shortened."""
    reason, value = _fault_of_line(line) or _fault_of_field(line.split(b"\t")) or ("not a row", line)
    return reason, _shown(value)


def _fault_of_line(line: bytes) -> tuple[str, bytes] | None:
    if len(line) > LONGEST_LINE:
        return f"a line longer than {LONGEST_LINE:,} bytes", line
    if b"\0" in line:
        return "a NUL byte", line
    fields = line.split(b"\t")
    if not line.isascii():
        return "a byte that is not ASCII", next(f for f in fields if not f.isascii())
    if len(fields) != len(COLUMNS):
        return f"{len(fields)} columns instead of {len(COLUMNS)}", line
    return None


def _fault_of_field(fields: list[bytes]) -> tuple[str, bytes] | None:
    if fields[0] not in (b"0", b"1"):
        return "the label is not 0 or 1", fields[0]
    for name, field in zip(INTEGERS, fields[1:14], strict=True):
        if field and _INTEGER.fullmatch(field) is None:
            return f"{name} is not an integer", field
        if field and int(field) not in _INT64:
            return f"{name} does not fit 64 bits", field
    for name, field in zip(CATEGORIES, fields[14:], strict=True):
        if _CATEGORY.fullmatch(field) is None:
            return f"{name} is not up to 8 hexadecimal digits", field
    return None


def _shown(value: bytes) -> str:
    text = value[: _SHOWN + 1].decode("ascii", "backslashreplace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _parse_clean(text: bytes, lines: int) -> Parsed | None:
    """Parse lines that are thought to be good; None when one of them is not."""
    characters = np.frombuffer(text, np.uint8)
    ends = _field_ends(characters, lines)
    if ends is None:
        return None
    labels = _labels(characters, ends)
    dense = _integers(text, lines)
    categories = _categories(characters, ends)
    if labels is None or dense is None or categories is None:
        return None
    return Parsed(labels, dense, *categories, None, [])


def _field_ends(characters: npt.NDArray[np.uint8], lines: int) -> npt.NDArray[np.int64] | None:
    """Return where each field ends: [lines, 40]; None when a line has other columns or is too long."""
    found = np.flatnonzero((characters == _TAB) | (characters == _NEWLINE))
    if len(found) != lines * len(COLUMNS):
        return None
    ends = found.reshape(lines, len(COLUMNS))
    # There are as many newlines as lines: when each line's last end is one, all the others are tabs.
    if np.any(characters[ends[:, -1]] != _NEWLINE):
        return None
    if lines and np.diff(ends[:, -1], prepend=-1).max() > LONGEST_LINE + 1:
        return None
    return ends


def _labels(characters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    starts = np.concatenate([[0], ends[:-1, -1] + 1])[: len(ends)]
    labels = characters[starts] - np.uint8(ord("0"))
    good = np.array_equal(ends[:, 0], starts + 1) and not np.any(labels > 1)
    return labels if good else None


def _integers(text: bytes, lines: int) -> npt.NDArray[np.float32] | None:
    """Return log1p(max(value, 0)) of each integer, 0 where it is missing: [lines, 13]."""
    if not lines:
        return np.empty((0, len(INTEGERS)), np.float32)
    try:
        frame = pl.read_csv(
            text, has_header=False, separator="\t", quote_char=None, schema=_SCHEMA, columns=_INTEGER_COLUMNS
        )
    except pl.exceptions.PolarsError:
        return None
    if frame.height != lines:
        return None
    values = np.empty((len(INTEGERS), lines), np.float32)
    for row, column in zip(values, frame.iter_columns(), strict=True):
        np.maximum(column.fill_null(0).to_numpy(), 0, out=row, casting="unsafe")
    np.log1p(values, out=values)
    return np.ascontiguousarray(values.T)


def _categories(
    characters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]] | None:
    """Return the number each category's digits stand for and whether it is missing: [26, lines] each.

    None when a field holds anything but up to eight hexadecimal digits. The word of a field is the eight
    bytes before its end, the first in the lowest byte; bytes of the field before are replaced by zeros.
    """
    codes = np.empty((len(CATEGORIES), len(ends)), np.uint32)
    missing = np.empty(codes.shape, np.bool_)
    words_at = np.lib.stride_tricks.as_strided(
        characters[:8].view(np.uint64) if len(ends) else np.empty(0, np.uint64),
        shape=(max(len(characters) - 7, 0),),
        strides=(1,),
    )
    for start in range(0, len(ends), _BLOCK):
        block = slice(start, start + _BLOCK)
        stops = np.ascontiguousarray(ends[block, -len(CATEGORIES) - 1 :].T)
        lengths = np.diff(stops, axis=0) - 1
        words = words_at[stops[1:] - 8]
        empty = np.equal(lengths, 0, out=missing[:, block])
        words = np.where(empty, _ZEROS, words)
        short = lengths != 8  # noqa: PLR2004 - digits of a full code
        short ^= empty
        if short.any():
            words[short] = _padded(words[short], lengths[short])
        if lengths.max() > 8 or not _are_hexadecimal(words):  # noqa: PLR2004 - likewise
            return None
        codes[:, block] = _from_hexadecimal(words)
    return codes, missing


def _padded(words: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Replace the bytes before a text of this length by the digit 0."""
    keep = np.array(
        [0, *((0xFFFFFFFFFFFFFFFF << (8 * (8 - n))) & 0xFFFFFFFFFFFFFFFF for n in range(1, 9))], np.uint64
    )
    mask = keep[np.minimum(lengths, 8)]
    return (words & mask) | (_ZEROS & ~mask)


def _are_hexadecimal(words: npt.NDArray[np.uint64]) -> bool:
    """Tell whether every byte of every word is one of 0-9, a-f, A-F. The bytes are ASCII."""
    high = np.uint64(0x8080808080808080)
    lower = words | np.uint64(0x2020202020202020)
    # Adding 0x80 - limit to a byte below 0x80 sets its high bit when the byte reaches the limit.
    digit = (words + _below(0x30)) & ~(words + _below(0x3A))
    digit |= (lower + _below(0x61)) & ~(lower + _below(0x67))
    digit &= high
    return bool(np.all(digit == high))


def _below(limit: int) -> np.uint64:
    return np.uint64((0x80 - limit) * 0x0101010101010101)


def _from_hexadecimal(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Turn eight digits, the first in the lowest byte, into the number they stand for."""
    letters = (words >> np.uint64(6)) & np.uint64(0x0101010101010101)
    letters *= np.uint64(9)
    digits = words & np.uint64(0x0F0F0F0F0F0F0F0F)
    digits += letters
    # Fold neighbours: 8 digits to 4 bytes to 2 halves to 1 word, the first part still the lowest.
    pairs = (digits << np.uint64(4)) | (digits >> np.uint64(8))
    pairs &= np.uint64(0x00FF00FF00FF00FF)
    halves = pairs | (pairs >> np.uint64(8))
    halves &= np.uint64(0x0000FFFF0000FFFF)
    halves |= halves >> np.uint64(16)
    numbers: npt.NDArray[np.uint32] = halves.astype(np.uint32).byteswap()
    return numbers
