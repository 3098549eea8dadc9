"""Reading ahead in a thread, beside the training: the reader's gathers and copies release the GIL."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Generic, TypeVar

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
    """

    def __init__(self, items: Iterable[T], *, depth: int = 2) -> None:
        self._items = items
        self._ready: queue.Queue[T | _End] = queue.Queue(maxsize=max(depth, 1))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
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
