"""The touched rows of a table on a device, in host memory: one bit for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.checkpoint.format.coding import encode_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trainer.checkpoint.format.frames import Array

Touched = dict[int, Any]  # numpy's int64, sorted, or TouchedBits for a device; by `id` of RowStamps

_COMPARED = 1 << 24  # stamps at a time: a comparison takes a byte of the device's memory for each
_WINDOW = 1 << 20  # rows whose bits are unpacked at a time
_NUMBER_BYTES = 4  # of a row that is listed by its number


@dataclass(frozen=True, slots=True)
class TouchedBits:
    """A set of rows; int64 numbers would take 64 times the memory."""

    bits: Array  # uint8, the first row in the highest bit, as numpy packs them
    size: int  # of the table
    count: int

    @classmethod
    def find(cls, stamps: Tensor, after: int) -> TouchedBits:
        """Return the rows that were stamped later than an interval."""
        parts, count = [np.empty(0, np.uint8)], 0
        for part in stamps.split(_COMPARED):
            flags = part > after
            parts.append(_pack(flags).cpu().numpy())
            count += int(torch.count_nonzero(flags))
        return cls(np.concatenate(parts), len(stamps), count)

    def __len__(self) -> int:
        return self.count

    def encoded(self) -> tuple[str, bytes]:
        """Return what `encode_rows` returns for these rows."""
        if self.count == self.size:
            return "all", b""
        if self.count * _NUMBER_BYTES > len(self.bits):
            return "bits", self.bits.tobytes()
        return encode_rows(np.concatenate([np.empty(0, np.int64), *self.chunks(_WINDOW)]), self.size)

    def chunks(self, most: int) -> Iterator[Array]:
        """Yield the row numbers (int64) in order, at most so many at a time."""
        held: list[Any] = []
        count = 0
        for start in range(0, self.size, _WINDOW):
            window = self.bits[start // 8 : (start + _WINDOW) // 8]
            found = np.flatnonzero(np.unpackbits(window, count=min(_WINDOW, self.size - start))) + start
            while count + len(found) >= most:
                yield np.concatenate([*held, found[: most - count]])
                found, held, count = found[most - count :], [], 0
            held.append(found)
            count += len(found)
        if count:
            yield np.concatenate(held)


def _pack(flags: Tensor) -> Tensor:
    """Return eight flags a byte, uint8."""
    padded = torch.nn.functional.pad(flags.to(torch.uint8), (0, -len(flags) % 8))
    values = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=flags.device)
    return (padded.view(-1, 8) * values).sum(dim=1, dtype=torch.uint8)
