"""Hashes of numbers, and of texts for features with `encoding: hash`; dataset.json names that of its texts.

`words64` is computed for all texts of a batch at once. The hash of a text of n bytes of UTF-8 is

    h = mix64(n + 0x9E3779B97F4A7C15)
    h = mix64(h ^ w) for each 8 bytes w, little-endian; the last ones are filled up with zeros

and that of a text of more than 256 bytes is its `blake2b`. Datasets of the first version have `blake2b` for
all texts, and name no hash. Both spread values evenly. Neither is secret: anyone who chooses the texts can
choose their ids.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    TextHash = Callable[[pa.Array], npt.NDArray[np.uint64]]

NEWEST = "words64"
FIRST_VERSION = "blake2b"
_PERSON = b"cloudrec"  # of BLAKE2b
_WORD = 8  # bytes
_LONG = 256  # bytes
_BLOCK = 8192  # texts whose hashes are in the processor's cache
_START = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], np.uint64)  # by bytes of a word


def text_hash(name: str) -> TextHash:
    """Return the hash of this name, a function of texts; that of a null may be any number.

    Raises:
        DataError: this version does not know it.
    """
    if name not in _HASHES:
        raise DataError(
            f"the dataset's ids are made by the hash {name!r}; this cloudrec has {' and '.join(_HASHES)}",
            remedy="use the version of cloudrec that prepared it",
        )
    return _HASHES[name]


def seeded_hash(texts: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    """Return another hash of texts for each seed; that of a null is the one of an empty text."""
    mixed = mix64(np.array([seed], np.uint64) + _START)
    return mix64(_words64(texts.fill_null("") if texts.null_count else texts) ^ mixed)


def mix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return murmur3's finaliser of each value: every bit of the input affects every bit of the output."""
    mixed = values ^ (values >> np.uint64(33))
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


def _words64(texts: pa.Array) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(len(texts), np.uint64)
    if not len(texts):
        return hashes
    ends, data = _buffers(texts)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    padded = np.zeros(size + _WORD, np.uint8)
    padded[:size] = data[first : first + size]
    words: npt.NDArray[np.uint64] = np.ndarray(size + 1, "<u8", padded, strides=(1,))  # of all places
    places, sizes = ends[:-1].astype(np.intp) - first, np.diff(ends).astype(np.intp)
    if len(long := np.flatnonzero(sizes > _LONG)):
        of_long = _blake2b_of([data[ends[row] : ends[row + 1]].tobytes() for row in long])
        sizes[long] = 0
    for start in range(0, len(texts), _BLOCK):
        block = slice(start, start + _BLOCK)
        hashes[block] = _hash_block(words, places[block], sizes[block])
    if len(long):
        hashes[long] = of_long
    return hashes


def _hash_block(
    words: npt.NDArray[np.uint64], places: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]
) -> npt.NDArray[np.uint64]:
    hashes = mix64(sizes.astype(np.uint64) + _START)
    least, most = int(sizes.min()), int(sizes.max())
    for done in range(0, most, _WORD):
        if least >= done + _WORD:
            hashes = mix64(hashes ^ words[places + done])
        elif least > done:
            hashes = mix64(hashes ^ _rest(words, places + done, sizes - done))
        else:
            rows = np.flatnonzero(sizes > done)
            hashes[rows] = mix64(hashes[rows] ^ _rest(words, places[rows] + done, sizes[rows] - done))
    return hashes


def _rest(
    words: npt.NDArray[np.uint64], places: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]
) -> npt.NDArray[np.uint64]:
    """Return the words at the places, zeros behind the ends of the texts."""
    return words[places] & _MASKS[np.minimum(sizes, _WORD)]


def _buffers(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return where texts begin and where the last one ends, and the bytes."""
    texts = texts.cast("string")
    _, ends, data = texts.buffers()
    places = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return places, np.frombuffer(b"" if data is None else data, np.uint8)


def _blake2b(texts: pa.Array) -> npt.NDArray[np.uint64]:
    return _blake2b_of([each or b"" for each in texts.cast("binary").to_pylist()])


def _blake2b_of(texts: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    begin = hashlib.blake2b(digest_size=8, person=_PERSON).copy  # faster than a new one for each
    digests = []
    for text in texts:
        (each := begin()).update(text)
        digests.append(each.digest())
    return np.frombuffer(b"".join(digests), "<u8")


_HASHES: dict[str, TextHash] = {NEWEST: _words64, FIRST_VERSION: _blake2b}
