"""The supervisor of one launch: `python -m cloudrec.launch._agent RUN_DIR LAUNCH LOCK_FD READY_FD`.

It is started in a session of its own, so that it outlives the terminal, and holds the run's lock for as
long as it lives: whoever wants to know whether the run is alive asks the kernel, not a file. It runs torch's
elastic agent, passes a stop on, writes what happens into the ledger, and leaves no process behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, StorageError
from cloudrec.launch import _tether, outputs
from cloudrec.launch.folder import RunFolder
from cloudrec.launch.local import plan_launch
from cloudrec.launch.verdict import (
    Evidence,
    culprit,
    describe,
    exits_of,
    final_code_of_launch,
    judge,
    last_attempt,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cloudrec.launch.ledger import Event

_POLL_S = 0.1


class Supervisor:
    """Looks after one launch of one run, from the start of its elastic agent to its end."""

    def __init__(self, run: RunFolder, launch: int) -> None:
        self._run = run
        self._spec = run.spec()
        self._launch = launch
        self._restarts = 0  # how many restarts the ledger has been told of
        self._restarting = False
        self._stop_asked = False
        self._grace_s: float | None = None  # set once the end has begun
        self._deadline = float("inf")  # monotonic time at which what still runs is killed
        self._killed = False
        self._agent: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start the elastic agent and say so in the ledger."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may go
        _tether.adopt_orphans()
        plan = plan_launch(self._run, self._spec, launch=self._launch)
        environment = {**os.environ, **plan.environment, _tether.PARENT_PID: str(os.getpid())}
        self._agent = subprocess.Popen(plan.command, env=environment, stdin=subprocess.DEVNULL)
        self._tell("started", pid=os.getpid(), command=list(plan.command))

    def watch(self) -> None:
        """Wait until the elastic agent has ended."""
        while self._agent.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._agent.wait(_POLL_S)
            events = self._run.ledger.read()
            self._note_restarts(events)
            self._begin_end(events)
            if time.monotonic() > self._deadline and not self._killed:
                self._killed = True
                self._agent.kill()  # everything below dies with it

    def finish(self) -> None:
        """End what is left and write down how it went."""
        self.kill()
        events = self._run.ledger.read()
        attempt = last_attempt(events, launch=self._launch)
        exits = exits_of(events, launch=self._launch, attempt=attempt)
        first = culprit(exits)
        checkpoint = outputs.committed_step(self._run, self._spec)
        outcome = judge(
            Evidence(
                agent_code=self._agent.returncode,
                exits=exits,
                attempt=attempt,
                max_restarts=self._spec.max_restarts,
                world_size=self._spec.world_size,
                stopping=self._stop_asked,
                requested=any(e.event == "stop_requested" and e.launch == self._launch for e in events),
                killed_after_s=self._grace_s if self._killed else None,
                finished=outputs.has_finished(self._run),
                checkpoint=checkpoint,
                error=outputs.last_error(self._run.rank_log(first.rank)) if first else None,
            )
        )
        exit_codes = {str(rank): code for rank, code in sorted(outcome.exit_codes.items())}
        self._tell(
            outcome.state.lower(),
            cause=outcome.cause,
            attempt=attempt,
            exit_codes=exit_codes,
            checkpoint=checkpoint,
        )

    def kill(self) -> None:
        """Kill the elastic agent and every process that it, or a worker, has left behind."""
        self._agent.kill()  # does nothing once it has been waited for
        self._agent.wait()
        _tether.kill_children()  # a worker that has ended may leave some, and they may hold a GPU's memory

    def _note_restarts(self, events: Sequence[Event]) -> None:
        """Write a restart into the ledger, and later that the trainer is at work again."""
        attempt = last_attempt(events, launch=self._launch)
        exits = exits_of(events, launch=self._launch, attempt=attempt)
        first = culprit(exits)
        over = self._grace_s is not None or self._is_final(events)
        due = attempt + 1 if first and attempt < self._spec.max_restarts and not over else attempt
        if due > self._restarts:
            self._restarts, self._restarting = due, True
            error = outputs.last_error(self._run.rank_log(first.rank)) if first else None
            cause = describe(first, error=error) if first else "a worker was killed"
            self._tell("restarting", attempt=due, cause=cause)
            _tether.kill_children(spared=[self._agent.pid])
        elif self._restarting and self._is_at_work(events):
            self._restarting = False
            self._tell("running", attempt=self._restarts)

    def _is_at_work(self, events: Sequence[Event]) -> bool:
        starts = [
            event.time
            for event in events
            if event.event == "rank_started"
            and event.launch == self._launch
            and event.details.get("attempt") == self._restarts
        ]
        return bool(starts) and outputs.started_since(self._run, min(starts))

    def _begin_end(self, events: Sequence[Event]) -> None:
        """Have the agent end its workers, once, when a stop is asked for or going on is of no use."""
        if self._grace_s is not None:
            return
        if not self._stop_asked and not self._is_final(events):
            return
        self._grace_s = self._grace(events)
        self._deadline = time.monotonic() + self._grace_s
        if self._stop_asked:
            self._tell("stopping", grace_s=self._grace_s)
        self._agent.terminate()

    def _is_final(self, events: Sequence[Event]) -> bool:
        world_size = self._spec.world_size
        return final_code_of_launch(events, launch=self._launch, world_size=world_size) is not None

    def _grace(self, events: Sequence[Event]) -> float:
        asked = [
            float(event.details["grace_s"])
            for event in events
            if event.event == "stop_requested" and event.launch == self._launch
        ]
        return asked[-1] if asked else self._spec.stop_grace_s

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _tell(self, event: str, **details: object) -> None:
        """Write an event down; a full disk ends nothing here: the trainer judges that for itself."""
        try:
            self._run.ledger.append(event, launch=self._launch, **details)
        except StorageError as error:
            print(f"{event} {details}: {error.message}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run one launch to its end; return 0 when its end is written down, however it ended."""
    run = RunFolder(path=Path(arguments[0]))
    launch, lock, ready = (int(argument) for argument in arguments[1:])
    for descriptor in (lock, ready):  # ours alone: a child that held the lock would keep the run "alive"
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "command": f"run {run.name}"}).encode(), 0)
    supervisor = Supervisor(run, launch)
    try:
        supervisor.start()
        os.write(ready, b"ready")
        os.close(ready)
        supervisor.watch()
        supervisor.finish()
    except BaseException as error:
        with suppress(CloudrecError):
            cause = f"its supervisor failed: {type(error).__name__}: {error}"
            run.ledger.append("failed", launch=launch, cause=cause)
        raise  # into agent.log; every process below dies with this one
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
