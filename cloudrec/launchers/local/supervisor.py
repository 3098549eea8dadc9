"""Supervises a launch: `python -m cloudrec.launchers.local.supervisor RUN_DIR LAUNCH LOCK_FD READY_FD`.

It is started in its own session, so that it outlives the terminal. It holds the run's lock while it lives, so
that the kernel decides whether the run is alive, and not a file. It runs torch's elastic agent, passes a stop
on, records events in the ledger, and ends every process of the launch.
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
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.script.finish import note_finished, note_stop
from cloudrec.launchers.base.verdict import (
    Evidence,
    culprit,
    describe,
    exits_of,
    final_code_of_launch,
    judge,
    last_attempt,
)
from cloudrec.launchers.local.launcher import plan_launch
from cloudrec.process import tether

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cloudrec.launchers.base.ledger import LedgerEvent

_POLL_S = 0.1


class Supervisor:
    """Runs one launch, from the start of its elastic agent to the end of all its processes."""

    def __init__(self, run: RunFolder, launch: int) -> None:
        self._run = run
        self._spec = run.spec()
        self._launch = launch
        self._restarts = 0  # restarts that the ledger has
        self._restarting = False
        self._stop_asked = False
        self._grace_s: float | None = None  # set once the end has begun
        self._deadline = float("inf")  # monotonic time at which what still runs is killed
        self._killed = False
        self._spared: list[int] = []  # process ids of children that a restart of the ranks does not end
        self._agent: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start the elastic agent and record it in the ledger."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may be closed
        tether.adopt_orphans()
        plan = plan_launch(self._run, self._spec, launch=self._launch)
        environment = {**os.environ, **plan.environment, tether.PARENT_PID: str(os.getpid())}
        self._agent = subprocess.Popen(plan.command, env=environment, stdin=subprocess.DEVNULL)
        self._record("started", pid=os.getpid(), command=list(plan.command))
        self._serve_metrics()

    def _serve_metrics(self) -> None:
        """Start what serves the run's metrics, if it has a port; it ends with this process."""
        if not self._spec.metrics_port:
            return
        command = [sys.executable, "-P", "-m", "cloudrec.agent", "metrics", str(self._run.path)]
        command += ["--port", str(self._spec.metrics_port), "--cluster", self._spec.cluster]
        environment = {**os.environ, tether.PARENT_PID: str(os.getpid())}
        with suppress(OSError):  # a run trains without it
            self._spared.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL).pid)

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
        """Kill the remaining processes and record how the launch ended."""
        self.kill()
        if self._spec.script is not None and self._agent.returncode == 0:
            note_finished(self._run)
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
                is_script=self._spec.script is not None,
                error=outputs.last_error(self._run.rank_log(first.rank)) if first else None,
            )
        )
        exit_codes = {str(rank): code for rank, code in sorted(outcome.exit_codes.items())}
        self._record(
            outcome.state.lower(),
            cause=outcome.cause,
            attempt=attempt,
            exit_codes=exit_codes,
            checkpoint=checkpoint,
        )

    def notify(self) -> None:
        """Start what notifies how the run ended; it outlives this process."""
        if self._spec.notify:
            from cloudrec.launchers.local import notify  # noqa: PLC0415 - most runs notify no one

            notify.begin(self._run, self._spec)

    def kill(self) -> None:
        """Kill the elastic agent, and all processes that it or a worker has started."""
        self._agent.kill()  # does nothing once it has been waited for
        self._agent.wait()
        tether.kill_children()  # processes of a worker that has ended may still hold a GPU's memory

    def _note_restarts(self, events: Sequence[LedgerEvent]) -> None:
        """Record a restart, and later that the trainer trains again."""
        # torch reports no restarts, so a restart is derived from the ranks' exits, which the ledger has.
        attempt = last_attempt(events, launch=self._launch)
        exits = exits_of(events, launch=self._launch, attempt=attempt)
        first = culprit(exits)
        over = self._grace_s is not None or self._is_final(events)
        due = attempt + 1 if first and attempt < self._spec.max_restarts and not over else attempt
        if due > self._restarts:
            self._restarts, self._restarting = due, True
            error = outputs.last_error(self._run.rank_log(first.rank)) if first else None
            cause = describe(first, error=error) if first else "a worker was killed"
            self._record("restarting", attempt=due, cause=cause)
            tether.kill_children(spared=[self._agent.pid, *self._spared])
        elif self._restarting and self._is_at_work(events):
            self._restarting = False
            self._record("running", attempt=self._restarts)

    def _is_at_work(self, events: Sequence[LedgerEvent]) -> bool:
        starts = [
            event.time
            for event in events
            if event.event == "rank_started"
            and event.launch == self._launch
            and event.details.get("attempt") == self._restarts
        ]
        return bool(starts) and outputs.started_since(self._run, min(starts))

    def _begin_end(self, events: Sequence[LedgerEvent]) -> None:
        """Signal the agent once to end its workers, after a stop request or a final exit code."""
        if self._grace_s is not None:
            return
        if not self._stop_asked and not self._is_final(events):
            return
        self._grace_s = self._grace(events)
        self._deadline = time.monotonic() + self._grace_s
        note_stop(self._run.path)
        if self._stop_asked:
            self._record("stopping", grace_s=self._grace_s)
        self._agent.terminate()

    def _is_final(self, events: Sequence[LedgerEvent]) -> bool:
        world_size = self._spec.world_size
        return final_code_of_launch(events, launch=self._launch, world_size=world_size) is not None

    def _grace(self, events: Sequence[LedgerEvent]) -> float:
        requested = [
            float(event.details["grace_s"])
            for event in events
            if event.event == "stop_requested" and event.launch == self._launch
        ]
        return requested[-1] if requested else self._spec.stop_grace_s

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _record(self, event: str, **details: object) -> None:
        """Append an event to the ledger. A full disk does not end the run: the trainer decides about that."""
        try:
            self._run.ledger.append(event, launch=self._launch, **details)
        except StorageError as error:
            print(f"{event} {details}: {error.message}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run one launch to its end; return 0 once the ledger has the end, whatever the state."""
    run = RunFolder(path=Path(arguments[0]))
    launch, lock, ready = (int(argument) for argument in arguments[1:])
    for descriptor in (lock, ready):  # not inherited: a child that held the lock would keep the run "alive"
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "command": f"run {run.name}"}).encode(), 0)
    supervisor = Supervisor(run, launch)
    try:
        supervisor.start()
        with suppress(BrokenPipeError):  # the launcher was killed; the run continues without it
            os.write(ready, b"ready")
        os.close(ready)
        supervisor.watch()
        supervisor.finish()
        supervisor.notify()
    except BaseException as error:
        with suppress(CloudrecError):
            cause = f"its supervisor failed: {type(error).__name__}: {error}"
            run.ledger.append("failed", launch=launch, cause=cause)
            supervisor.notify()
        raise  # the traceback is in agent.log; the kernel kills every process below with this one
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
