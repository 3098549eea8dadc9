"""Keeps a Ray head for one run: `python -m cloudrec.launch._ray.host RUN_DIR LOCK_FD READY_FD`.

It is started in a session of its own, starts the head, and ends it once the run has ended. The head is told
by the kernel when this process dies, and ends too; the lock tells others that it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launch import _tether
from cloudrec.launch._ray.observer import Observer
from cloudrec.launch._ray.place import own_folder
from cloudrec.launch.folder import RunFolder
from cloudrec.launch.ledger import last_launch
from cloudrec.providers.local import ray_head

if TYPE_CHECKING:
    from types import FrameType

_POLL_S = 1.0
_SUBMITTED_S = 120.0  # within which the launcher has sent the job


class _Ended(Exception):  # noqa: N818 - no error: this process was told to end
    pass


def main(arguments: list[str]) -> int:
    """Start the head, keep it until the run has ended, and end it."""
    run = RunFolder(path=Path(arguments[0]))
    lock, ready = (int(argument) for argument in arguments[1:])
    for descriptor in (lock, ready):  # ours alone: Ray must not keep the run "alive"
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "command": f"run {run.name}"}).encode(), 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may go
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
    """Start the head and tell the launcher how that went."""
    own = os.getpid()
    try:
        head = ray_head.begin_head(folder, prepare=lambda: _tether.die_with(own))
        ray_head.await_head(folder, head)
    except CloudrecError as error:
        os.write(ready, json.dumps({"message": error.message, "remedy": error.remedy}).encode())
        os.close(ready)
        return None
    os.write(ready, b"{}")
    os.close(ready)
    return head


def _keep(run: RunFolder, head: ray_head.RayHead) -> None:
    """Wait until the run has ended; a job that is not sent in time is not waited for."""
    observer, give_up = Observer(run), time.monotonic() + _SUBMITTED_S
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
