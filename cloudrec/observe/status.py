"""Watches a run until it ends: its lines and its changes of state, in their order."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

from cloudrec.launchers import launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launchers.base.protocol import RunStatus
    from cloudrec.launchers.base.run_folder import RunFolder

_POLL_S = 0.1


def watch_run(run: RunFolder, *, rank: int = 0, tail: int | None = None) -> Iterator[str | RunStatus]:
    """Yield the new lines of one rank (str) and each change of state (RunStatus) until the run ends.

    The first item is the present state, and the last one the final state, after all lines. The end of the
    iteration does not stop the run.

    Args:
        run: the run.
        rank: the rank.
        tail: number of present lines to begin with; 0 for only new ones, None for all.

    Raises:
        CloudrecError: the lines or the state cannot be read. The run continues.
    """
    engine = launcher(run.spec().launcher)
    # The log blocks until a line comes; with a thread, changes of state are seen in between.
    lines: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    threading.Thread(
        target=_pump, args=(engine.logs(run, rank=rank, follow=True, tail=tail), lines), daemon=True
    ).start()
    status = engine.state(run)
    yield status
    asked = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            pass
        else:
            if line is None:
                break
            if isinstance(line, BaseException):
                raise line
            yield line
        if time.monotonic() - asked >= _POLL_S:
            asked, before, status = time.monotonic(), status, engine.state(run)
            if status != before and not status.state.is_final:
                yield status
    yield engine.state(run)


def wait_for_end(run: RunFolder, *, timeout_s: float | None = None) -> RunStatus:
    """Wait until the run ends or the time is over; return its state."""
    engine = launcher(run.spec().launcher)
    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    while not (status := engine.state(run)).state.is_final:
        if give_up is not None and time.monotonic() > give_up:
            break
        time.sleep(_POLL_S)
    return status


def _pump(source: Iterator[str], lines: queue.SimpleQueue[str | BaseException | None]) -> None:
    """Put all lines into the queue, and None after the last one, or the error that ended them."""
    try:
        for line in source:
            lines.put(line)
    except BaseException as error:  # noqa: BLE001 - the reader of the queue raises it
        lines.put(error)
    else:
        lines.put(None)
