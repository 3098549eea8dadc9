"""Walk a graph concurrently: a key's work starts as soon as the work of all keys that it needs is done."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import TopologicalSorter
from queue import SimpleQueue
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
    """Call `work` for each key after the keys that it needs; return key -> error of those that failed.

    A key that needs a failed key is skipped, and is not in the result.

    Args:
        needs: key -> keys that must be done first.
        work: the work for one key; called from a worker thread.
        stop_at_failure: start nothing new after a failure (for creation). If False, continue with every key
            that does not need a failed one (for removal: one stuck resource must not keep the others).
        clock: the clock that the work waits by. It is stopped if this thread is interrupted, so that no
            worker continues to wait for minutes.
    """
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    failed: dict[str, Exception] = {}
    # Each future reports once. Waiting for all running ones instead would view each of them at every step.
    ended: SimpleQueue[Future[None]] = SimpleQueue()
    with ThreadPoolExecutor(max_workers=_MAX_WORKERS, thread_name_prefix="engine") as pool:
        running: dict[Future[None], str] = {}
        try:
            while sorter.is_active():
                if not (failed and stop_at_failure):
                    for key in sorter.get_ready():
                        future = pool.submit(work, key)
                        running[future] = key
                        future.add_done_callback(ended.put)
                if not running:
                    break
                future = ended.get()
                key = running.pop(future)
                error = future.exception()
                if isinstance(error, Exception):
                    failed[key] = error
                else:
                    # Raises a worker's KeyboardInterrupt or SystemExit, which is no failure of its key.
                    future.result()
                    # Not called for a failed key, so that no key that needs it becomes ready.
                    sorter.done(key)
        except BaseException:
            # Stop the clock first: leaving the `with` block joins the workers, which may wait for minutes.
            if clock is not None:
                clock.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed
