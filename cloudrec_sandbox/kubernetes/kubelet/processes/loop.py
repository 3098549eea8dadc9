"""The kubelet's one thread: it starts all containers, reads all their pipes, and runs what is due."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.core.clock import Clock

_LOOK_S = 0.05  # how often virtual timers are checked, since the clock can be advanced


class Loop:
    """Runs steps in order, reads pipes that have data, and runs timers of the real and of the virtual clock.

    A container dies with the thread that started it (PR_SET_PDEATHSIG), so one thread starts them all and
    outlives them.
    """

    def __init__(self, clock: Clock) -> None:
        self.selector = selectors.DefaultSelector()
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self._real: list[tuple[float, int, Callable[[], None]]] = []
        self._virtual: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self.selector.register(
            self._wake_reader, selectors.EVENT_READ, lambda _: os.read(self._wake_reader, 4096)
        )
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, last: Callable[[], None]) -> None:
        """Stop the thread, after one last step."""
        self.soon(last)
        self.soon(self._stop)
        self._thread.join()
        self.selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def soon(self, step: Callable[[], None]) -> None:
        """Run a step in the thread."""
        self._steps.append(step)
        self._wake()

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Run a step after `seconds` of real time, in which processes live."""
        with self._lock:
            heapq.heappush(self._real, (time.monotonic() + seconds, next(self._order), step))
        self._wake()  # a thread that has nothing to do sleeps without an end

    def after_virtual(self, seconds: float, step: Callable[[], None]) -> None:
        """Run a step after `seconds` of virtual time, for what is only waited for."""
        with self._lock:
            heapq.heappush(self._virtual, (self._clock.now() + seconds, next(self._order), step))
        self._wake()

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:  # which looks at its timers anyway
            with suppress(BlockingIOError):  # the pipe is full, so the thread wakes up anyway
                os.write(self._wake_writer, b"1")

    def _stop(self) -> None:
        self._is_closed = True

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self.selector.select(self._patience()):
                self._try(key.data, key.fileobj)
            self._take_due(self._real, time.monotonic())
            self._take_due(self._virtual, self._clock.now())
            for _ in range(len(self._steps)):
                self._try(self._steps.popleft())

    def _patience(self) -> float | None:
        if self._steps:
            return 0
        with self._lock:
            waits = [max(0.0, self._real[0][0] - time.monotonic())] if self._real else []
            if self._virtual:
                waits.append(_LOOK_S)
        return min(waits, default=None)

    def _take_due(self, timers: list[tuple[float, int, Callable[[], None]]], now: float) -> None:
        while True:
            with self._lock:
                if not timers or timers[0][0] > now:
                    return
                step = heapq.heappop(timers)[2]
            self._try(step)

    @staticmethod
    def _try(step: Callable[..., Any], *arguments: object) -> None:
        try:
            step(*arguments)
        except Exception:  # noqa: BLE001 - one broken pod must not stop the others; the trace is printed
            print(traceback.format_exc(), file=sys.stderr, flush=True)
