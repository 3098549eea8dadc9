"""Small values of a GPU that are read later: reading one at once waits until the GPU has nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class LateCopy:
    """A tensor on its way to the CPU, with the values that it has after what was queued on the GPU before."""

    def __init__(self, tensor: Tensor) -> None:
        self._end: torch.cuda.Event | None = None
        if tensor.device.type == "cpu":
            self._copy = tensor.clone()
            return
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copy.copy_(tensor, non_blocking=True)
        self._end = torch.cuda.current_stream(tensor.device).record_event()

    def wait(self) -> Tensor:
        """Return the copy, once it is complete."""
        if self._end is not None:
            self._end.synchronize()
        return self._copy
