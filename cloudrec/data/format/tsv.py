"""Parsing Criteo TSV, one chunk of whole lines at a time: from bytes to arrays, and the malformed lines.

A line is a label (0 or 1), 13 integers and 26 categories of up to 8 hexadecimal digits, separated by
tabs; integers and categories may be empty. `_LINE` is the grammar.

`fields` parses a chunk block by block, assuming that all its lines are well-formed. If that fails, the lines
of the chunk are matched with the grammar one by one, and the well-formed ones are parsed again.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from cloudrec.data.format import fields
from cloudrec.data.format.fields import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from cloudrec.data.format.codes import Cache

LABEL = "label"
INTEGERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
COLUMNS = (LABEL, *INTEGERS, *CATEGORIES)
_INTEGER = re.compile(rb"-?\d+")
_CATEGORY = re.compile(rb"[0-9a-fA-F]{0,8}")
_LINE = re.compile(rb"[01](?:\t(?:-?\d+)?){13}(?:\t[0-9a-fA-F]{0,8}){26}")
_LONG_INTEGER = re.compile(rb"\d{19}")
_INT64 = range(-(1 << 63), 1 << 63)
_MANY = 16  # one unknown category in so many is many
_SHOWN = 40  # characters of a bad value
_OF_THREAD = threading.local()


class CategoryEncoder(Protocol):
    """Converts categories to numbers."""

    cache: Cache

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the numbers of words that are not in the cache; None if one is not a hexadecimal code."""


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
    """The good rows of a chunk: those of the training split in order, then those held out in order."""

    labels: npt.NDArray[np.uint8]  # [rows]
    dense: npt.NDArray[np.float32]  # [rows, 13], transformed
    numbers: npt.NDArray[np.int32]  # [26, rows]: the encoder's, 0 where missing
    held_out: int  # rows
    bad: list[BadLine]


HeldOut: TypeAlias = "Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]"  # which of these rows


def parse(chunk: Chunk, encoder: CategoryEncoder, held_out: HeldOut | None = None) -> Parsed:
    """Parse a chunk; malformed lines are omitted and reported.

    Args:
        chunk: the lines.
        encoder: converts categories to numbers.
        held_out: returns, for row numbers, which rows are held out; without it, none are.
    """
    text = chunk.text.replace(b"\r\n", b"\n") if b"\r" in chunk.text else chunk.text
    if text.isascii() and b"\0" not in text:
        rows = np.arange(chunk.first_row, chunk.first_row + chunk.lines)
        parsed = _parse_clean(text, rows, encoder, held_out)
        if parsed is not None:
            return parsed
    return _parse_doubtful(text, chunk, encoder, held_out)


def _parse_doubtful(text: bytes, chunk: Chunk, encoder: CategoryEncoder, held_out: HeldOut | None) -> Parsed:
    good, rows, bad = [], [], []
    for index, line in enumerate(text.split(b"\n")[: chunk.lines]):
        if _is_good(line):
            good.append(line)
            rows.append(chunk.first_row + index)
        else:
            bad.append(BadLine(chunk.first_line + index, *_explain(line)))
    text = b"".join(line + b"\n" for line in good)
    parsed = _parse_clean(text, np.array(rows, np.int64), encoder, held_out)
    if parsed is None:  # a bug in cloudrec, not an error in the data
        raise AssertionError(f"lines near {chunk.first_line} fit the grammar, but cannot be read")
    return parsed._replace(bad=bad)


def _is_good(line: bytes) -> bool:
    if len(line) > LONGEST_LINE or _LINE.fullmatch(line) is None:
        return False
    return _LONG_INTEGER.search(line) is None or all(
        not field or int(field) in _INT64 for field in line.split(b"\t")[1:14]
    )


def _explain(line: bytes) -> tuple[str, str]:
    """Return why a line is malformed, and the wrong value, shortened."""
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


def _parse_clean(
    text: bytes, rows: npt.NDArray[np.int64], encoder: CategoryEncoder, held_out: HeldOut | None
) -> Parsed | None:
    """Parse lines that are assumed to be well-formed; None if one is not."""
    room = _Room(len(rows), None if held_out is None else held_out(rows))
    for block in _blocks(text):
        if not room.take(block, encoder):
            return None
    return room.parsed() if room.settle(encoder) else None


def _blocks(text: bytes) -> Iterator[npt.NDArray[np.uint8]]:
    characters = np.frombuffer(text, np.uint8)
    start = 0
    while start < len(text):
        stop = text.rfind(b"\n", start, start + fields.BLOCK_BYTES) + 1
        if not stop:  # one line fills the block
            stop = text.index(b"\n", start) + 1
        yield characters[start:stop]
        start = stop


def _scratch() -> fields.Scratch:
    if not hasattr(_OF_THREAD, "scratch"):
        _OF_THREAD.scratch = fields.Scratch()
    scratch: fields.Scratch = _OF_THREAD.scratch
    return scratch


class _Room:
    """The arrays of a chunk's rows while they are parsed."""

    def __init__(self, rows: int, held_out: npt.NDArray[np.bool_] | None) -> None:
        self._labels = np.empty(rows, np.uint8)
        self._dense = np.empty((rows, len(INTEGERS)), np.float32)
        self._numbers = np.empty((len(CATEGORIES), rows), np.int32)
        self._held_out = held_out
        self._held_out_rows = 0 if held_out is None else int(np.count_nonzero(held_out))
        self._next = 0  # line
        self._ends = [0, rows - self._held_out_rows]  # of each split's rows so far
        self._new: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64]]] = []  # places, words

    def take(self, text: npt.NDArray[np.uint8], encoder: CategoryEncoder) -> bool:
        """Parse some lines; False if one is malformed."""
        scratch = _scratch()
        held_out = None
        if self._held_out is not None:
            lines = int(np.count_nonzero(text == ord("\n")))
            held_out = self._held_out[self._next : self._next + lines]
            self._next += lines
        cut = fields.cut(text, held_out, scratch)
        if cut is None:
            return False
        labels, block = cut
        dense, words = fields.integers(block, scratch), fields.categories(block)
        if dense is None or words is None:
            return False
        numbers, new = encoder.cache.look_up(words, scratch)
        trained = len(labels) - (0 if held_out is None else int(np.count_nonzero(held_out)))
        self._put(labels, dense, numbers, trained)
        if len(new):
            feature, row = np.divmod(new, len(labels))
            first = np.where(row < trained, self._ends[0] - trained, self._ends[1] - len(labels))
            self._new.append((feature * len(self._labels) + first + row, words.reshape(-1)[new]))
        # At the start of a file the cache is empty; adding a block's words now makes the next blocks fast.
        return len(new) * _MANY < words.size or self.settle(encoder)

    def _put(
        self,
        labels: npt.NDArray[np.uint8],
        dense: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.int32],
        trained: int,
    ) -> None:
        for split, source in enumerate((slice(0, trained), slice(trained, None))):
            start = self._ends[split]
            self._ends[split] = start + len(labels[source])
            here = slice(start, self._ends[split])
            self._labels[here] = labels[source]
            self._dense[here] = dense[:, source].T
            self._numbers[:, here] = numbers[:, source]

    def settle(self, encoder: CategoryEncoder) -> bool:
        """Number the words that were not in the cache; False if one is not a hexadecimal code."""
        if not self._new:
            return True
        places = np.concatenate([places for places, _ in self._new])
        words = np.concatenate([words for _, words in self._new])
        features = places // len(self._labels)
        flat = self._numbers.reshape(-1)
        for feature in np.unique(features).tolist():
            of_feature = np.flatnonzero(features == feature)
            numbers = encoder.numbers(feature, words[of_feature])
            if numbers is None:
                return False
            flat[places[of_feature]] = numbers
        self._new.clear()
        return True

    def parsed(self) -> Parsed:
        """Return the rows."""
        return Parsed(self._labels, self._dense, self._numbers, self._held_out_rows, [])
