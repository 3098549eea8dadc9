"""A stream that knows the size and the sha256 of what was written. This module must not import torch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import BinaryIO


class SummedStream:
    """Passes on what is written.

    Attributes:
        size: the bytes written.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.size = 0
        self._file = file
        self._summed = hashlib.sha256()

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        """Write bytes; return how many."""
        length = memoryview(data).nbytes
        self._summed.update(data)
        self._file.write(data)
        self.size += length
        return length

    @property
    def sha256(self) -> str:
        """Of all that was written."""
        return self._summed.hexdigest()
