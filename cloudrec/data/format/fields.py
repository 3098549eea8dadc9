"""Parsing the fields of many lines together, with numpy: where they end, and their values.

A block of text is so small that all arrays derived from it stay in the processor's cache. The last eight
bytes of every field become one 64-bit word (the first byte lowest), and all words are processed together.

Integers are also parsed here and not by Polars: its CSV reader took 0.5 us per row for these 13 columns, a
fifth of all the work, because it must find every separator again. The words take a quarter of that.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

COLUMNS = 40
INTEGERS = 13
FEATURES = 26
LONGEST_LINE = 4096  # bytes; a good line has at most about 600 (more only with leading zeros)
BLOCK_BYTES = 1 << 19  # of text: about two thousand rows
_PIECE = 1 << 16  # bytes in which newlines are counted together
_WORD = 8  # bytes
_TAB, _NEWLINE = ord("\t"), ord("\n")
_ZEROS = np.uint64(0x3030303030303030)  # the text 00000000
_ALL = 0xFFFFFFFFFFFFFFFF
_KEEP = np.array([_ALL << (8 * (8 - n)) & _ALL for n in range(9)], np.uint64)  # the last n bytes of a word
_PAD = np.array([0, *(int(_ZEROS) & ~int(k) for k in _KEEP[1:])], np.uint64)  # zeros before them
_LOG1P = np.log1p(np.arange(1 << 16, dtype=np.float32))  # the same bits as computed one by one
_LONG_INTEGER = re.compile(rb"-?\d+")
_INT64 = range(-(1 << 63), 1 << 63)


class Scratch:
    """Memory for one thread's blocks, which is reused: fresh pages would cost more than the work on them.

    All steps use "one" and "two" for their temporary values, so that these stay in the cache.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, npt.NDArray[np.uint64]] = {}

    def array(self, name: str, dtype: type[np.generic], *shape: int) -> npt.NDArray[Any]:
        """Return the uninitialised array of a name; it overwrites the name's earlier array."""
        size = math.prod(shape)
        words = -(-size * np.dtype(dtype).itemsize // _WORD)
        memory = self._bytes.get(name)
        if memory is None or len(memory) < words:
            memory = self._bytes[name] = np.empty(words + words // 4, np.uint64)
        return memory.view(dtype)[:size].reshape(shape)


class FieldBlock(NamedTuple):
    """Whole lines, cut into fields. It is in scratch memory, so the next block overwrites it."""

    text: npt.NDArray[np.uint8]
    stops: npt.NDArray[np.int32]  # [40, lines]: where each field ends
    lengths: npt.NDArray[np.int32]  # [39, lines]: bytes of each field but the label
    words: npt.NDArray[np.uint64]  # [39, lines]: the eight bytes before each of their ends


def count_lines(text: bytes) -> int:
    """Count newlines: piece by piece in the processor's cache, four times as fast as bytes.count."""
    characters = np.frombuffer(text, np.uint8)
    pieces = range(0, len(text), _PIECE)
    return sum(int(np.count_nonzero(characters[p : p + _PIECE] == _NEWLINE)) for p in pieces)


def cut(
    source: npt.NDArray[np.uint8], held_out: npt.NDArray[np.bool_] | None, scratch: Scratch
) -> tuple[npt.NDArray[np.uint8], FieldBlock] | None:
    """Cut lines into fields and read their labels, [lines]; None if a line is malformed.

    Held-out lines are moved behind the others; otherwise the order is kept.
    """
    # Eight more bytes on either side: a word may begin before the text, and reads continue beyond its end.
    padded = scratch.array("text", np.uint64, (len(source) + 3 * _WORD - 1) // _WORD)
    text = padded.view(np.uint8)[_WORD : _WORD + len(source)]
    text[:] = source
    ends = _line_ends(text, scratch)
    labels = None if ends is None else _labels(text, ends)
    if ends is None or labels is None:
        return None
    if held_out is not None:
        order = np.concatenate([np.flatnonzero(~held_out), np.flatnonzero(held_out)])
        ends, labels = np.take(ends, order, axis=0, mode="clip"), labels[order]
    stops = scratch.array("stops", np.int32, *ends.shape[::-1])
    stops[...] = ends.T
    lengths = scratch.array("lengths", np.int32, COLUMNS - 1, len(ends))
    np.subtract(stops[1:], stops[:-1], out=lengths)
    lengths -= 1
    return labels, FieldBlock(text, stops, lengths, _words(padded, stops[1:], scratch))


def _line_ends(text: npt.NDArray[np.uint8], scratch: Scratch) -> npt.NDArray[np.int64] | None:
    """Return the end of each field, [lines, 40]; None if a line has other columns or is too long."""
    marks = scratch.array("one", np.bool_, len(text))
    newlines = scratch.array("two", np.bool_, len(text))
    np.equal(text, _TAB, out=marks)
    np.equal(text, _NEWLINE, out=newlines)
    lines = np.count_nonzero(newlines)
    marks |= newlines
    found = np.flatnonzero(marks)
    if len(found) != lines * COLUMNS:
        return None
    ends = found.reshape(lines, COLUMNS)
    # There are as many newlines as lines, so if each line's last end is a newline, all other ends are tabs.
    last = ends[:, -1]
    if not newlines[last].all() or np.diff(last, prepend=-1).max() > LONGEST_LINE + 1:
        return None
    return ends


def _labels(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    stops = ends[:, 0]
    labels = text[stops - 1] - np.uint8(ord("0"))
    good = stops[0] == 1 and np.array_equal(stops[1:], ends[:-1, -1] + 2) and labels.max() <= 1
    return labels if good else None


def _words(
    padded: npt.NDArray[np.uint64], stops: npt.NDArray[np.int32], scratch: Scratch
) -> npt.NDArray[np.uint64]:
    """Return the eight bytes before each place: two aligned words, shifted together.

    (Numpy gathers unaligned words element by element, at twice the cost.)
    """
    at = scratch.array("one", np.int64, *stops.shape)
    low = scratch.array("words", np.uint64, *stops.shape)
    high = scratch.array("two", np.uint64, *stops.shape)
    at[...] = stops
    at >>= 3
    np.take(padded, at, out=low, mode="clip")  # "clip" (they are within) spares a buffer for the result
    np.take(padded[1:], at, out=high, mode="clip")
    at[...] = stops
    at &= 7
    at <<= 3
    bits = at.view(np.uint64)
    low >>= bits
    np.subtract(64, bits, out=bits)
    high <<= bits  # by 64: numpy gives 0
    low |= high
    return low


def integers(block: FieldBlock, scratch: Scratch) -> npt.NDArray[np.float32] | None:
    """Return log1p(max(value, 0)) of each integer, 0 if missing, [13, lines]; None if one is malformed."""
    lengths = block.lengths[:INTEGERS]
    digits = scratch.array("one", np.uint64, *lengths.shape)
    other = scratch.array("two", np.uint64, *lengths.shape)
    np.take(_KEEP, lengths, out=digits, mode="clip")
    np.bitwise_xor(block.words[:INTEGERS], _ZEROS, out=other)
    digits &= other
    np.add(digits, np.uint64(0x7676767676767676), out=other)  # sets the high bit of bytes above 9
    odd = None
    if int(np.bitwise_or.reduce(other, axis=None)) & 0x8080808080808080 or lengths.max() > _WORD:
        odd = np.flatnonzero(((other & np.uint64(0x8080808080808080)) != 0) | (lengths > _WORD))
    values = _folded(digits, other).view(np.int64)
    dense = scratch.array("dense", np.float32, *lengths.shape)
    np.take(_LOG1P, values, out=dense, mode="clip")
    if values.max() >= len(_LOG1P):
        large = values >= len(_LOG1P)
        dense[large] = np.log1p(values[large].astype(np.float32))
    if odd is not None and not _read_odd(block, odd, dense.reshape(-1)):
        return None
    return dense


def _folded(digits: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Convert words of eight digits, the first in the lowest byte, to numbers: fold neighbours in place."""
    for base, bits, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10_000, 32, 0x00000000FFFFFFFF),
    ):
        np.right_shift(digits, np.uint64(bits), out=other)
        digits *= np.uint64(base)
        digits += other
        digits &= np.uint64(mask)
    return digits


def _read_odd(block: FieldBlock, places: npt.NDArray[np.intp], dense: npt.NDArray[np.float32]) -> bool:
    """Parse the integers that are negative or longer than a word; False if one is malformed."""
    lengths = block.lengths[:INTEGERS].reshape(-1)[places]
    words = block.words[:INTEGERS].reshape(-1)[places]
    sizes = np.clip(lengths, 0, _WORD)
    starts = np.uint64(64) - np.uint64(8) * sizes.astype(np.uint64)
    signs = (words >> np.minimum(starts, np.uint64(63))) & np.uint64(0xFF)
    digits = (words ^ _ZEROS) & _KEEP[np.maximum(sizes - 1, 0)]
    above = (digits + np.uint64(0x7676767676767676)) & np.uint64(0x8080808080808080)
    negative = (signs == ord("-")) & (above == 0) & (lengths > 1) & (lengths <= _WORD)
    dense[places[negative]] = 0
    for place, length in zip(places[~negative].tolist(), lengths[~negative].tolist(), strict=True):
        stop = int(block.stops[1 : INTEGERS + 1].reshape(-1)[place])
        field = block.text[stop - length : stop].tobytes()
        if _LONG_INTEGER.fullmatch(field) is None or (value := int(field)) not in _INT64:
            return False
        dense[place] = np.log1p(np.float32(max(value, 0)))
    return True


def categories(block: FieldBlock) -> npt.NDArray[np.uint64] | None:
    """Return each category's text as a word, padded with "0" in front, [26, lines]; the word 0 if missing.

    None if one is longer than eight bytes; whether the bytes are digits is not checked here.
    """
    lengths, words = block.lengths[INTEGERS:], block.words[INTEGERS:]
    other = lengths != _WORD
    short = np.flatnonzero(other)
    if len(short):
        sizes = lengths.reshape(-1)[short]
        if sizes.max() > _WORD:
            return None
        flat = words.reshape(-1)
        flat[short] = (flat[short] & _KEEP[sizes]) | _PAD[sizes]
    return words


def are_hexadecimal(words: npt.NDArray[np.uint64]) -> bool:
    """Return whether every byte of every word is one of 0-9, a-f, A-F. The bytes are ASCII."""
    high = np.uint64(0x8080808080808080)
    lower = words | np.uint64(0x2020202020202020)
    # Adding 0x80 - limit to a byte below 0x80 sets its high bit when the byte reaches the limit.
    digit = (words + _below(0x30)) & ~(words + _below(0x3A))
    digit |= (lower + _below(0x61)) & ~(lower + _below(0x67))
    digit &= high
    return bool(np.all(digit == high))


def _below(limit: int) -> np.uint64:
    return np.uint64((0x80 - limit) * 0x0101010101010101)


def from_hexadecimal(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Convert words of eight hexadecimal digits, the first in the lowest byte, to numbers."""
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


def to_hexadecimal(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Convert numbers to words of eight digits with lower-case letters: the inverse of `from_hexadecimal`."""
    words = codes.byteswap().astype(np.uint64)  # the first two digits in the lowest byte
    for bits, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF)):
        words = (words | (words << np.uint64(bits))) & np.uint64(mask)
    words = ((words >> np.uint64(4)) | (words << np.uint64(8))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    letters = ((words + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return words + _ZEROS + letters * np.uint64(ord("a") - ord("0") - 10)


def lower_case(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Convert the letters of hexadecimal digits to lower case."""
    return words | np.uint64(0x2020202020202020)  # digits have this bit already
