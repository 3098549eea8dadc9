"""Hashes of texts, the same on every machine, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.data.prepare.encode import mix64

if TYPE_CHECKING:
    import numpy.typing as npt

_WORD = 8  # bytes


def hashed_texts(texts: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each text, the same on every machine: its words of 8 bytes, mixed one by one."""
    data = texts.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + len(data) + 1]
    content = data.buffers()[2]
    room = np.zeros(int(ends[-1]) + _WORD, np.uint8)
    if content is not None and content.size:
        room[: int(ends[-1])] = np.frombuffer(content, np.uint8)[: int(ends[-1])]
    words = np.lib.stride_tricks.sliding_window_view(room, _WORD)
    hashes = mix64(mix64(np.full(len(data), seed, np.uint64)) ^ lengths.astype(np.uint64))
    for done in range(0, int(lengths.max(initial=0)), _WORD):
        rows = np.flatnonzero(lengths > done)
        found = np.ascontiguousarray(words[ends[rows] + done]).view("<u8").reshape(-1)
        left = np.minimum(lengths[rows] - done, _WORD).astype(np.uint64)
        found &= np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(_WORD) - left) * np.uint64(8))
        hashes[rows] = mix64(hashes[rows] ^ mix64(found + np.uint64(done)))
    return hashes
