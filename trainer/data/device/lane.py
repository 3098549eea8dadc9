"""The stream of a device on which batches are made, beside the streams of the training."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class SideLane:
    """Work on a device in the order in which it was given, from any thread.

    One stream for copies and kernels needs no events between the two: memory that a later piece of work uses
    again was released by an earlier one. On a CPU, work is done at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def work(self) -> AbstractContextManager[object]:
        """Give the work of this context to the lane."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def staging(self, size: int) -> Tensor:
        """Return memory for `size` bytes from which the lane copies without waiting."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._stream is not None)

    def send(self, staged: Tensor) -> Tensor:
        """Return a copy on the device; `staged` may be changed once a mark after it is reached."""
        if self._stream is None:
            return staged.clone()
        return staged.to(self.device, non_blocking=True)

    def constant(self, values: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
        """Return numbers on the device, without waiting for it."""
        numbers = torch.tensor(values, dtype=dtype)
        return numbers if self._stream is None else numbers.pin_memory().to(self.device, non_blocking=True)

    def mark(self) -> torch.cuda.Event | None:
        """Return an event that is reached when all work so far is done; None if it is done."""
        if self._stream is None:
            return None
        event = torch.cuda.Event(
            blocking=True
        )  # who waits on the host sleeps, as another thread needs the core
        event.record(self._stream)
        return event


def await_mark(mark: torch.cuda.Event | None) -> None:
    """Wait on the host."""
    if mark is not None:
        mark.synchronize()


class _RecordedEvent(Protocol):
    def record_stream(self, stream: Any, /) -> None: ...  # noqa: ANN401 - torch.Stream, torchrec's protocol


def take_over(made: _RecordedEvent, mark: torch.cuda.Event | None) -> None:
    """Make the current stream wait for what a lane made, and the allocator wait for this stream."""
    if mark is not None:
        stream = torch.cuda.current_stream()
        stream.wait_event(mark)
        made.record_stream(stream)


_LANES: dict[torch.device, SideLane] = {}
_LOCK = threading.Lock()


def lane_of(device: torch.device) -> SideLane:
    """Return the lane of a device; there is one for the process."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    with _LOCK:
        if device not in _LANES:
            _LANES[device] = SideLane(device)
        return _LANES[device]
