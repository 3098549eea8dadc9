"""Threads that read loads into a ring of page-locked buffers and send them to the device."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from trainer.data.device.lane import await_mark
from trainer.data.device.layout import arrays_in, size_of, tensors_in
from trainer.data.device.windows import DeviceWindow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from trainer.data.device.lane import SideLane
    from trainer.data.device.layout import LoadShape, Section, SplitLayout
    from trainer.data.device.loads import ReadPlan, WindowLoad

READERS = 2  # threads; a copy of rows releases the GIL
_MORE = 4  # a buffer that is too small is replaced by one with a quarter to spare


class StagingSlot:
    """One buffer of the ring."""

    def __init__(self, lane: SideLane) -> None:
        self._lane = lane
        self._buffer: Tensor | None = None
        self._sent: torch.cuda.Event | None = None

    def fill(
        self, layout: SplitLayout, load: WindowLoad, shape: LoadShape, sections: Mapping[str, Section]
    ) -> dict[str, npt.NDArray[Any]]:
        """Read a load, once the buffer's last content was sent; return the buffer's arrays."""
        await_mark(self._sent)
        arrays = arrays_in(self.memory(size_of(sections)), sections)
        layout.fill(load, shape, arrays)
        return arrays

    def send(self, sections: Mapping[str, Section]) -> dict[str, Tensor]:
        """Return the arrays on the device, to which they are being copied."""
        assert self._buffer is not None  # noqa: S101 - for the type checker: it was filled
        sent = tensors_in(self._lane.send(self._buffer[: size_of(sections)]), sections)
        self._sent = self._lane.mark()
        return sent

    def memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Return the buffer, of at least `size` bytes; a larger one replaces a smaller one."""
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = None  # released first
            self._buffer = self._lane.staging(size + size // _MORE)
        memory: npt.NDArray[np.uint8] = self._buffer.numpy()
        return memory


class WindowReader:
    """Reads the loads of a plan ahead, in several threads; use it as a context.

    At most `readers` + 1 loads are read and not yet released.
    """

    def __init__(
        self, plan: ReadPlan, layout: SplitLayout, lane: SideLane, *, readers: int = READERS
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._lane = lane
        self._left: Iterator[WindowLoad] = plan.loads()
        self._slots: queue.SimpleQueue[StagingSlot] = queue.SimpleQueue()
        for _ in range(readers + 1):
            self._slots.put(StagingSlot(lane))
        self._changed = threading.Condition()
        self._ready: dict[int, DeviceWindow | BaseException] = {}
        self._room = readers + 1
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name="reader", daemon=True) for _ in range(readers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def window(self, number: int) -> DeviceWindow:
        """Return a load's rows on the device; an error of its reader is raised here."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._ready)
            found = self._ready.pop(number)
        if isinstance(found, BaseException):
            raise found
        return found

    def release(self) -> None:
        """Allow another load to be read in place of one whose last rows were taken."""
        with self._changed:
            self._room += 1
            self._changed.notify_all()

    def _claim(self) -> WindowLoad | None:
        """Return the next load when there is room for it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0 or self._stopped)
            load = None if self._stopped else next(self._left, None)
            if load is not None:
                self._room -= 1
            return load

    def _run(self) -> None:
        while (load := self._claim()) is not None:
            made: DeviceWindow | BaseException
            try:
                made = self._read(load)
            except BaseException as error:  # noqa: BLE001 - handed to the consumer, who raises it
                made = error
            with self._changed:
                self._ready[load.number] = made
                self._changed.notify_all()

    def _read(self, load: WindowLoad) -> DeviceWindow:
        layout, lane = self._layout, self._lane
        shape = layout.shape_of(load)
        sections = layout.sections(shape)
        slot = self._slots.get()
        try:
            with lane.work():
                arrays = slot.fill(layout, load, shape, sections)
                sent = slot.send(sections)
                return DeviceWindow(layout, load, sent, self._plan, arrays.get("lengths"))
        finally:
            self._slots.put(slot)
