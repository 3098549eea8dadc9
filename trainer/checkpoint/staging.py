"""Memory for the copies of a cut, there before it is needed.

Fresh memory comes page by page as it is first written to, which takes longer than the copy itself. So a
thread writes to it once, while training goes on, as soon as it can be told how much will be copied.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trainer.checkpoint.frames import Allocate, Array

_ALIGNMENT = 64
_HEADROOM = 1.25  # of what the last cut copied: no two intervals touch the same number of rows


class Staging:
    """One copy of what a cut copies; whoever allocates from it must be done before the next cut."""

    def __init__(self) -> None:
        self._buffer: Array = None
        self._thread: threading.Thread | None = None

    def is_ready(self, size: int) -> bool:
        """Whether so many bytes can be copied without a page being asked for."""
        return self._buffer is not None and len(self._buffer) >= size

    def prepare(self, size: int) -> None:
        """Have room for a cut like one of so many bytes, soon."""
        if self.is_ready(size) or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._grow, args=(int(size * _HEADROOM),), daemon=True)
        self._thread.start()

    def allocator(self) -> Allocate:
        """Arrays of the prepared memory, one behind the other; of fresh memory once that is used up."""
        buffer, used = self._buffer, 0

        def allocate(shape: tuple[int, ...], dtype: Any) -> Array:  # noqa: ANN401 - whatever numpy takes
            nonlocal used
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            if buffer is None or used + size > len(buffer):
                return np.empty(shape, dtype)
            array = buffer[used : used + size].view(dtype).reshape(shape)
            used += -(-size // _ALIGNMENT) * _ALIGNMENT
            return array

        return allocate

    def _grow(self, size: int) -> None:
        self._buffer = None  # not both at a time
        buffer = np.empty(size, dtype=np.uint8)
        ctypes.memset(buffer.ctypes.data, 0, size)  # without Python's lock
        self._buffer = buffer
