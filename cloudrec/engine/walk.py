"""Walk a graph concurrently: a node starts the moment that everything it needs is done."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.clock import Clock

_MAX_WORKERS = 64  # threads spend their time waiting for a cloud, not computing


def walk(
    needs: Mapping[str, AbstractSet[str]],
    work: Callable[[str], None],
    *,
    stop_at_failure: bool,
    clock: Clock | None = None,
) -> dict[str, Exception]:
    """Call `work` for every key after the keys it needs; return what failed, by key.

    Args:
        needs: key -> keys that must be done first.
        work: what to do for one key; called from a worker thread.
        stop_at_failure: start nothing new after a failure (creation). Otherwise go on with all that
            does not need what failed (removal: one stuck resource must not keep the others alive).
        clock: what the work waits by; stopped when this thread is interrupted, so that no worker goes on
            waiting for minutes.

    A key whose need failed is not worked at and not reported: its need is.
    """
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    failed: dict[str, Exception] = {}
    with ThreadPoolExecutor(max_workers=_MAX_WORKERS, thread_name_prefix="engine") as pool:
        running: dict[Future[None], str] = {}
        try:
            while sorter.is_active():
                if not (failed and stop_at_failure):
                    running |= {pool.submit(work, key): key for key in sorter.get_ready()}
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    key = running.pop(future)
                    error = future.exception()
                    if isinstance(error, Exception):
                        failed[key] = error
                    else:
                        future.result()  # raises what is no error but an end
                        sorter.done(key)  # a failed key is never done: nothing that needs it becomes ready
        except BaseException:
            if clock is not None:
                clock.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed
