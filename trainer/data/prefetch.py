"""Reading ahead in a thread, beside the training: the reader's gathers and copies release the GIL."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self

T = TypeVar("T")
_POLL_SECONDS = 0.1  # within which a reader that waits for a free place notices the end of the context


class _End:
    """Marks the end of the items, with the error that caused it if there was one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetcher(Generic[T]):
    """Iterates over `items` while a thread reads up to `depth` of them ahead; use it as a context.

    An error of the reader is raised in place of the item. Leaving the context ends the thread, even if items
    are left.

    Args:
        items: what the thread iterates over.
        depth: the number of items that may wait.
        serial: whether torch's operations in the thread use one core. Take it where the training computes on
            the CPU: with a second team of OpenMP threads there are more threads than cores, and the teams
            then sleep between operations instead of spinning: 10 to 20 % slower on two cores.
    """

    def __init__(self, items: Iterable[T], *, depth: int = 2, serial: bool = False) -> None:
        self._items = items
        self._serial = serial
        self._limited = threading.Event()
        self._ready: queue.Queue[T | _End] = queue.Queue(maxsize=max(depth, 1))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)

    def __enter__(self) -> Self:
        threads = torch.get_num_threads()
        self._thread.start()
        if self._serial:
            # torch keeps the number for each thread, and one for threads that have not started.
            self._limited.wait()
            torch.set_num_threads(threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        while not isinstance(item := self._ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    def _run(self) -> None:
        error: BaseException | None = None
        if self._serial:
            torch.get_num_threads()  # a thread's first call sets the number that the process has
            torch.set_num_threads(1)
            self._limited.set()
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as caught:  # noqa: BLE001 - handed to the consumer, who raises it
            error = caught
        finally:
            if isinstance(self._items, Generator):
                self._items.close()  # here, as another thread must not close it
        self._put(_End(error))

    def _put(self, item: T | _End) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
