"""Runs a Ray head for one run: `python -m cloudrec.launchers.ray.host RUN_DIR LOCK_FD READY_FD`.

It is started in its own session, starts the head, and ends it once the run has ended. The kernel kills the
head when this process ends. It holds the run's lock, by which other processes see that it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.ray.head import own_folder
from cloudrec.launchers.ray.observer import RayObserver
from cloudrec.process import ray_head, tether

if TYPE_CHECKING:
    from types import FrameType

_POLL_S = 1.0
_SUBMITTED_S = 120.0  # limit for the launcher to submit the job


class _Ended(Exception):  # noqa: N818 - no error: SIGTERM or SIGINT ends this process
    pass


def main(arguments: list[str]) -> int:
    """Start the head, keep it until the run has ended, and end it."""
    run = RunFolder(path=Path(arguments[0]))
    lock, ready = (int(argument) for argument in arguments[1:])
    for descriptor in (lock, ready):  # not inherited: Ray would hold the lock and keep the run "alive"
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "command": f"run {run.name}"}).encode(), 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may be closed
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_stop)
    folder = own_folder(run)
    try:
        head = _start(folder, ready)
        if head:
            _keep(run, head)
    except _Ended:
        pass
    finally:
        ray_head.end_head(folder)
    return 0


def _start(folder: Path, ready: int) -> ray_head.RayHead | None:
    """Start the head and report the outcome to the launcher; return None if it did not start."""
    own = os.getpid()
    try:
        head = ray_head.begin_head(folder, prepare=lambda: tether.die_with(own))
        ray_head.await_head(folder, head)
    except CloudrecError as error:
        _report(ready, {"message": error.message, "remedy": error.remedy})
        return None
    _report(ready, {})
    return head


def _report(ready: int, outcome: dict[str, str | None]) -> None:
    """Write the outcome to the launcher's pipe: {} for a success, else message and remedy."""
    with suppress(BrokenPipeError):  # the launcher was killed; `_keep` then waits for another submit
        os.write(ready, json.dumps(outcome).encode())
    os.close(ready)


def _keep(run: RunFolder, head: ray_head.RayHead) -> None:
    """Wait until the run has ended, the head has ended, or no job was submitted in time."""
    observer, give_up = RayObserver(run), time.monotonic() + _SUBMITTED_S
    while head.is_alive:
        events = run.ledger.read()
        launch = last_launch(events)
        sent = any(event.launch == launch and event.event == "started" for event in events)
        if sent:
            status = observer.status()
            if status.state.is_final:
                return
        elif time.monotonic() > give_up or any(
            event.launch == launch and event.event in ("failed", "interrupted") for event in events
        ):
            return
        time.sleep(_POLL_S)


def _on_stop(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
