"""The launcher for this machine: torch's elastic agent under a supervisor that outlives the terminal.

    cloudrec train -> supervisor (_agent) -> torchrun (_elastic) -> one parent a rank (_rank) -> the trainer

The supervisor holds the run's lock while it lives, so a run's state always comes from a living process. Each
process below it is killed by the kernel when its parent ends: whichever is killed, nothing is left behind.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from cloudrec.errors import MissingExtraError, RunFailedError, UsageError
from cloudrec.home import make_private, storage_error, write_atomically
from cloudrec.launch import outputs
from cloudrec.launch._follow import follow_lines
from cloudrec.launch.base import LaunchPlan, RunHandle, RunStatus
from cloudrec.launch.ledger import RunState, last_launch, refuse_finished, state_after
from cloudrec.launch.verdict import last_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

_START_TIMEOUT_S = 30.0
_LOCK_WAIT_S = 1.0
_POLL_S = 0.1
_KILL_MARGIN_S = 15.0  # what the supervisor may need beyond the grace before it is killed itself
_NEVER_S = "86400"  # the supervisor holds the grace; torch's own shorter one (30 s) must not cut it short
_SET_HERE = ("output_dir", "config")


@dataclass(frozen=True, kw_only=True)
class LocalLauncher:
    """Runs the trainer's ranks as processes of this machine.

    Args:
        name: what `--launcher` calls it.
        needed: the modules without which the trainer cannot run.
        reads_local_files: the trainer sees the same files as whoever launches it.
        nodes_of_cluster: the node is the cluster's: this machine.
    """

    name: str = "local"
    reads_local_files: bool = True
    nodes_of_cluster: bool = True
    needed: tuple[str, ...] = ("torch", "torchrec", "fbgemm_gpu", "numpy", "fsspec")

    def preflight(self, spec: RunSpec) -> None:
        """Refuse a machine without the trainer's packages, more than one node, and flags that are ours."""
        for module in self.needed:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError("trainer", module=module)
        if spec.nnodes != 1:
            raise UsageError(
                f"the local launcher runs on this machine alone, and nnodes is {spec.nnodes}",
                remedy="use --nproc-per-node for more processes, or a launcher of a cluster",
            )
        for flag in _SET_HERE:
            if outputs.flag_value(spec.trainer_flags, flag) is not None:
                raise UsageError(
                    f"the trainer flag --{flag} is set by cloudrec: a run's files are in its own folder",
                    remedy=f"leave --{flag} out",
                )

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the command, the environment and the files of the first launch."""
        return plan_launch(run, spec, launch=1)

    def submit(self, run: RunFolder) -> RunHandle:
        """Start the run's supervisor, or start it again; return once its elastic agent has been started."""
        spec = run.spec()
        lock = take_lock(run)
        try:
            launch = _next_launch(run)
            for path, text in plan_launch(run, spec, launch=launch).files.items():
                write_atomically(run.path / path, text)
            run.ledger.append("submitted", launch=launch, launcher=self.name)
            return RunHandle(id=str(_start_supervisor(run, launch=launch, lock=lock)), launch=launch)
        finally:
            os.close(lock)  # the supervisor has its own copy, and with it the lock

    def state(self, run: RunFolder) -> RunStatus:
        """Tell the state: a run whose supervisor does not live is never RUNNING, whatever its ledger says."""
        alive = run.is_alive  # before the ledger is read: the last entry is written while it lives
        events = run.ledger.read()
        state = state_after(events)
        attempt = last_attempt(events, launch=last_launch(events))
        if not state.is_final and not alive:
            cause = "its process is gone (killed, or the machine was restarted)"
            return RunStatus(state=RunState.FAILED, cause=cause, attempt=attempt)
        causes = [event.details.get("cause") for event in events if event.event == state.lower()]
        return RunStatus(state=state, cause=causes[-1] if causes else None, attempt=attempt)

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Ask the supervisor to end the run, and wait until it has; kill it when it does not."""
        spec = run.spec()
        if not run.is_alive:
            raise UsageError(
                f"the run {run.name!r} is not running: it is {self.state(run).state}",
                remedy="`cloudrec status` tells the state of every run",
            )
        grace = spec.stop_grace_s if grace_s is None else grace_s
        launch = last_launch(run.ledger.read())
        run.ledger.append("stop_requested", launch=launch, grace_s=grace)
        _signal_supervisor(run, signal.SIGTERM)
        if not _wait_until_gone(run, grace + _KILL_MARGIN_S):
            _signal_supervisor(run, signal.SIGKILL)  # the kernel kills everything below it
            _wait_until_gone(run, _KILL_MARGIN_S)
            if not state_after(run.ledger.read()).is_final:
                cause = "stopped on request, but killed: its supervisor did not answer"
                run.ledger.append("interrupted", launch=launch, cause=cause)
        return self.state(run)

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield the lines of one rank's log."""
        return follow_lines(
            run.rank_log(rank), tail=tail, is_over=lambda: not follow or not run.is_alive, poll_s=_POLL_S
        )

    def collect(self, run: RunFolder) -> None:
        """Do nothing: all that a run leaves is in its folder."""


LAUNCHER = LocalLauncher()


def plan_launch(run: RunFolder, spec: RunSpec, *, launch: int) -> LaunchPlan:
    """Return what is started for one launch of a run.

    Every address is a loopback one: nothing that the ranks say to each other leaves the machine.
    """
    elastic = (
        *(sys.executable, "-m", "cloudrec.launch._elastic"),
        *("--nnodes", "1", "--nproc-per-node", str(spec.nproc_per_node)),
        *("--max-restarts", str(spec.max_restarts)),
        *("--rdzv-backend", "loopback", "--rdzv-endpoint", "127.0.0.1", "--rdzv-id", f"{run.name}-{launch}"),
        *("--local-addr", "127.0.0.1", "--log-dir", os.devnull, "--no-python"),
    )
    rank = (sys.executable, "-m", "cloudrec.launch._rank", str(run.path), str(launch), "--")
    trainer = (*spec.trainer_command, "--config", str(run.config_file), "--output_dir", str(run.path))
    return LaunchPlan(
        command=(*elastic, *rank, *trainer, *spec.trainer_flags),
        environment=_environment(spec),
        files={run.config_file.name: yaml.safe_dump(dict(spec.trainer_config), sort_keys=False)},
    )


def _environment(spec: RunSpec) -> dict[str, str]:
    loopback = "lo" if sys.platform == "linux" else "lo0"
    threads = max(1, (os.cpu_count() or 1) // spec.nproc_per_node)
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "PYTHONSAFEPATH": "1",  # a folder named `trainer` in the current one must not be taken for ours
        "PYTHONUNBUFFERED": "1",  # a log that is followed, and one that a killed process leaves, is whole
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": _NEVER_S,
        **spec.environment,
    }


def take_lock(run: RunFolder) -> int:
    """Lock the run for the supervisor to come; UsageError when another one has it."""
    try:
        descriptor = os.open(run.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(run.lock_file, error) from error
    give_up = time.monotonic() + _LOCK_WAIT_S  # one who only asks whether it is locked holds it for a moment
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                os.close(descriptor)
                raise UsageError(
                    f"the run {run.name!r} is running",
                    remedy=f"watch it with `cloudrec logs {run.name} --follow`, or stop it first",
                ) from None
            time.sleep(_POLL_S)
        else:
            return descriptor


def _next_launch(run: RunFolder) -> int:
    events = run.ledger.read()
    refuse_finished(run.name, events)
    return last_launch(events) + 1


def _start_supervisor(run: RunFolder, *, launch: int, lock: int) -> int:
    """Start the supervisor in a session of its own and return its process id once it is at work."""
    make_private(run.logs)
    ours, its = os.pipe()
    module = ("-m", "cloudrec.launch._agent", str(run.path), str(launch), str(lock), str(its))
    try:
        with run.agent_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock, its),
            )
    except OSError as error:
        os.close(ours)
        raise storage_error(run.agent_log, error) from error
    finally:
        os.close(its)  # from here on the pipe ends when the supervisor does
    try:
        _await_start(run, ours, launch=launch)
    except BaseException:  # Ctrl-C too: what was not reported as started must not go on
        process.kill()
        process.wait()
        raise
    finally:
        os.close(ours)
    process.returncode = 0  # it outlives us on purpose: no warning that it still runs
    return process.pid


def _await_start(run: RunFolder, pipe: int, *, launch: int) -> None:
    """Wait for the supervisor's word on the pipe; the pipe's end without one means that it has died."""
    readable, _, _ = select.select([pipe], [], [], _START_TIMEOUT_S)
    if readable and os.read(pipe, 16):
        return
    last_words = outputs.read_tail(run.agent_log, limit=2000).strip() or "it said nothing"
    cause = "its supervisor died while starting" if readable else "its supervisor did not start in time"
    run.ledger.append("failed", launch=launch, cause=cause)
    raise RunFailedError(
        f"the run {run.name!r} could not be started: {cause}:\n{last_words}",
        remedy=f"look into {run.agent_log}; when it is put right: `cloudrec train --resume {run.name}`",
    )


def _signal_supervisor(run: RunFolder, number: signal.Signals) -> None:
    """Send a signal to the process that holds the run's lock, and to no other one.

    A process id read from a file may be another's by now. One that is opened, and whose lock is still held
    after that, was the holder's when it was opened, and stays so.
    """
    with suppress(OSError, ValueError, KeyError):
        pid = int(json.loads(run.lock_file.read_text(encoding="utf-8"))["pid"])
        if sys.platform != "linux":
            os.kill(pid, number)
            return
        process = os.pidfd_open(pid)
        try:
            if run.is_alive:
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)


def _wait_until_gone(run: RunFolder, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while run.is_alive:
        if time.monotonic() > give_up:
            return False
        time.sleep(_POLL_S)
    return True
