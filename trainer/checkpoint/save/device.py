"""Work beside training on a device: a separate stream, pinned host memory, and the order between both.

This is all that a snapshot needs of CUDA. A test has another SideDevice, for tensors of a CPU, which does the
queued work as late as CUDA may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer.base.entry import State

T = TypeVar("T")


class QueuedWork(Protocol):
    """The end of queued work."""

    def wait(self) -> None:
        """Block this thread until the work is done; its results in host memory are undefined before."""
        ...


class SideDevice(Protocol):
    """A device with a queue beside that of training; work in a queue is done in order."""

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is in this device's memory."""
        ...

    def host_buffer(self, size: int) -> Tensor:
        """Return pinned host memory (uint8 [size]), to which the device copies while the host continues."""
        ...

    def scratch(self, size: int) -> Tensor:
        """Return memory of the device (uint8 [size]) for queued work only."""
        ...

    def follow_training(self) -> None:
        """Let work that is queued from now on begin after the training that was queued so far."""
        ...

    def hold_training(self) -> None:
        """Let training that is queued from now on begin after the work that was queued so far."""
        ...

    def enqueue(self, work: Callable[[], None]) -> QueuedWork:
        """Queue the torch operations of `work`; return before they are done."""
        ...

    def ask(self, work: Callable[[], T]) -> T:
        """Queue the torch operations of `work`, which waits for their result itself, and return it."""
        ...


class CudaDevice:
    """A GPU. See SideDevice.

    Streams run in parallel, and each in order (CUDA C++ Programming Guide, "Asynchronous Concurrent
    Execution"); a copy to pinned memory returns before it is done ("Page-Locked Host Memory"). Scratch memory
    is allocated while the side stream is the current one, so torch's allocator gives it to no other stream
    (torch.cuda, "Memory management").
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def holds(self, tensor: Tensor) -> bool:
        """See SideDevice; unified memory of fbgemm's tables counts as the GPU's."""
        return tensor.is_cuda

    def host_buffer(self, size: int) -> Tensor:
        """See SideDevice."""
        with torch.cuda.device(self._device):  # in another thread, the first GPU is the current one
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def scratch(self, size: int) -> Tensor:
        """See SideDevice."""
        with torch.cuda.stream(self._stream):
            return torch.empty(size, dtype=torch.uint8, device=self._device)

    def follow_training(self) -> None:
        """See SideDevice; call it from the thread that trains."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def hold_training(self) -> None:
        """See SideDevice; call it from the thread that trains."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def enqueue(self, work: Callable[[], None]) -> QueuedWork:
        """See SideDevice."""
        with torch.cuda.stream(self._stream):
            work()
            event = torch.cuda.Event()
            event.record(self._stream)
        return _Recorded(event)

    def ask(self, work: Callable[[], T]) -> T:
        """See SideDevice."""
        with torch.cuda.stream(self._stream):
            return work()


class _Recorded:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()


def find_device(state: State) -> SideDevice | None:
    """Return the GPU that has tensors of a state; None if all are in host memory."""
    for entry in state.values():
        for shard in entry.shards:
            if shard.tensor.is_cuda:
                return CudaDevice(shard.tensor.device)
    return None
