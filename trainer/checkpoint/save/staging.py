"""Memory for the copies of a cut, allocated before the cut.

The kernel maps fresh memory page by page on the first write, which takes longer than the copy itself. So a
thread writes to it once, while training continues, as soon as the size of the copy is known.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trainer.checkpoint.format.frames import Allocate, Array

_ALIGNMENT = 64
_HEADROOM = 1.25  # of what the last cut copied: no two intervals touch the same number of rows


class Staging:
    """A buffer for one cut's copies; its allocations must be released before the next cut."""

    def __init__(self) -> None:
        self._buffer: Array = None
        self._thread: threading.Thread | None = None

    def is_ready(self, size: int) -> bool:
        """Whether this many bytes can be copied into memory that is mapped already."""
        return self._buffer is not None and len(self._buffer) >= size

    def prepare(self, size: int) -> None:
        """Start a thread that allocates memory for a cut of this many bytes, unless there is enough."""
        if self.is_ready(size) or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._grow, args=(int(size * _HEADROOM),), daemon=True)
        self._thread.start()

    def allocator(self) -> Allocate:
        """Return a function that allocates arrays in the prepared memory, then in fresh memory."""
        buffer, used = self._buffer, 0

        def allocate(shape: tuple[int, ...], dtype: Any) -> Array:  # noqa: ANN401 - any numpy type
            nonlocal used
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            if buffer is None or used + size > len(buffer):
                return np.empty(shape, dtype)
            array = buffer[used : used + size].view(dtype).reshape(shape)
            used += -(-size // _ALIGNMENT) * _ALIGNMENT
            return array

        return allocate

    def _grow(self, size: int) -> None:
        self._buffer = None  # releases the old buffer first, so that both never exist together
        buffer = np.empty(size, dtype=np.uint8)
        ctypes.memset(buffer.ctypes.data, 0, size)  # a foreign call, so it releases the GIL
        self._buffer = buffer
