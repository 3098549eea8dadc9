"""Requests that wait at the same time are encoded and scored together.

A few threads take what waits, up to a number of rows: while one batch is scored, the next requests gather. So
one request alone does not wait, and many share the fixed cost of a batch. If the rows of a batch do not
all fit, its requests are encoded one by one, so that no request's error becomes another's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class QueueFullError(Exception):
    """Too many requests wait."""


class _Waiting(NamedTuple, Generic[T]):
    rows: Sequence[Mapping[str, Any]]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[T]


class Batcher(Generic[T]):
    """Answers requests by threads.

    Attributes:
        work: makes the answers of several requests, one for each; RowsRefusedError refuses rows.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Sequence[Mapping[str, Any]]]], Sequence[T]],
        *,
        threads: int,
        most_rows: int,
        most_waiting: int,
        wait_s: float = 0.0,
    ) -> None:
        """Start the threads.

        Args:
            work: see the class.
            threads: how many batches are worked on at once.
            most_rows: of a batch, unless one request has more.
            most_waiting: requests; a further one is refused.
            wait_s: how long a batch waits for further requests, beside the time until a thread is free.
        """
        self.work = work
        self._most_rows, self._most_waiting, self._wait_s = most_rows, most_waiting, wait_s
        self._waiting: deque[_Waiting[T]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    async def answer(self, rows: Sequence[Mapping[str, Any]]) -> T:
        """Return the answer of a request.

        Raises:
            RowsRefusedError: its rows do not fit.
            QueueFullError: too many requests wait.
        """
        loop = asyncio.get_running_loop()
        waiting: _Waiting[T] = _Waiting(rows, loop, loop.create_future())
        with self._changed:
            if self._closed or len(self._waiting) >= self._most_waiting:
                raise QueueFullError
            self._waiting.append(waiting)
            self._changed.notify()
        return await waiting.answer

    def close(self) -> None:
        """End the threads once they have answered all that waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (batch := self._take()) is not None:
            if not batch:  # another thread took what waited
                continue
            try:
                answers = self.work([each.rows for each in batch])
            except Exception as error:  # noqa: BLE001 - it is the request's, which raises it
                if len(batch) == 1:
                    _end(batch[0], error=error)
                else:
                    self._one_by_one(batch)
                continue
            for each, answer in zip(batch, answers, strict=True):
                _end(each, answer=answer)

    def _one_by_one(self, batch: Sequence[_Waiting[T]]) -> None:
        for each in batch:
            try:
                (answer,) = self.work([each.rows])
            except Exception as error:  # noqa: BLE001 - as above
                _end(each, error=error)
            else:
                _end(each, answer=answer)

    def _take(self) -> list[_Waiting[T]] | None:
        """Return the requests of the next batch; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            until = time.monotonic() + self._wait_s
            while self._waiting and (left := until - time.monotonic()) > 0 and not self._closed:
                if sum(len(each.rows) for each in self._waiting) >= self._most_rows:
                    break
                self._changed.wait(left)
            batch: list[_Waiting[T]] = []
            rows = 0
            while self._waiting and (not batch or rows + len(self._waiting[0].rows) <= self._most_rows):
                rows += len(self._waiting[0].rows)
                batch.append(self._waiting.popleft())
            return batch


def _end(waiting: _Waiting[T], *, answer: T | None = None, error: Exception | None = None) -> None:
    def end() -> None:
        if waiting.answer.done():  # the client has gone
            return
        if error is not None:
            waiting.answer.set_exception(error)
        else:
            waiting.answer.set_result(answer)  # type: ignore[arg-type] # one of both is given

    waiting.loop.call_soon_threadsafe(end)
