"""The launcher for this machine: torch's elastic agent under a supervisor that outlives the terminal.

    cloudrec train -> supervisor (_agent) -> torchrun (_elastic) -> one parent a rank (_rank) -> the trainer

The supervisor holds the run's lock while it lives, so a run counts as alive only while a process of it is.
The kernel kills each process below it when its parent ends, so no process remains, whichever is killed.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from cloudrec.errors import CloudrecError, MissingExtraError, RunFailedError, UsageError
from cloudrec.home import make_private, open_lock, read_text, storage_error, write_atomically
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.attach import check_rank
from cloudrec.launchers.base.follow import follow_lines
from cloudrec.launchers.base.ledger import RunState, last_launch, refuse_finished, state_after
from cloudrec.launchers.base.protocol import LaunchPlan, RunHandle, RunStatus, Skipped
from cloudrec.launchers.base.script.prepare import NodeFolders, prepare, read_archive
from cloudrec.launchers.base.verdict import last_attempt
from cloudrec_contract.readable import is_readable
from cloudrec_contract.safe_json import safe_object
from cloudrec_contract.settings import flag_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_START_TIMEOUT_S = 30.0
_LOCK_WAIT_S = 1.0
_POLL_S = 0.1
_KILL_MARGIN_S = 15.0  # beyond the grace, after which the supervisor itself is killed
_NEVER_S = "86400"  # the supervisor holds the grace; torch's own shorter one (30 s) must not cut it short
_SET_HERE = ("output_dir", "config")


@dataclass(frozen=True, kw_only=True)
class LocalLauncher:
    """Runs the trainer's ranks as processes of this machine.

    Args:
        name: the value of `--launcher`.
        reads_local_files: True: the trainer runs on the machine that launches it.
        nodes_of_cluster: True: the cluster's node is this machine.
        needed: the modules without which the trainer cannot run.
    """

    name: str = "local"
    reads_local_files: bool = True
    nodes_of_cluster: bool = True
    needed: tuple[str, ...] = ("torch", "torchrec", "fbgemm_gpu", "numpy", "fsspec")

    def preflight(self, spec: RunSpec) -> None:
        """Check that the trainer is installed, and that the spec has one node and no flag of cloudrec's."""
        for module in self.needed:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError("trainer", module=module)
        if spec.nodes != 1:
            raise UsageError(
                f"the local launcher runs on this machine alone, and nodes is {spec.nodes}",
                remedy="use --nproc-per-node for more processes, or a launcher of a cluster",
            )
        for flag in _SET_HERE:
            if flag_value(spec.trainer_flags, flag) is not None:
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
        # Before the lock: the supervisor of a finished run holds it for a moment after the last ledger entry.
        refuse_finished(run.name, run.ledger.read())
        lock = take_lock(run)  # this process's until the supervisor inherits it, so that no other one starts
        try:
            launch = _next_launch(run)
            for path, text in plan_launch(run, spec, launch=launch).files.items():
                write_atomically(run.path / path, text)
            run.ledger.append("submitted", launch=launch, launcher=self.name)
            _prepare(run, spec, launch=launch)
            return RunHandle(id=str(_start_supervisor(run, launch=launch, lock=lock)), launch=launch)
        finally:
            os.close(lock)  # the supervisor has its own copy, and with it the lock

    def state(self, run: RunFolder) -> RunStatus:
        """Return the state; a run without a living supervisor is never RUNNING, whatever its ledger says."""
        alive = run.is_alive  # before the ledger is read: the last entry is written while it lives
        events = run.ledger.outline()
        state = state_after(events)
        attempt = last_attempt(events, launch=last_launch(events))
        if not state.is_final and not alive:
            cause = "its process is gone (killed, or the machine was restarted)"
            return RunStatus(state=RunState.FAILED, cause=cause, attempt=attempt)
        causes = [event.details.get("cause") for event in events if event.event == state.lower()]
        cause_in_ledger = str(causes[-1]) if causes and causes[-1] is not None else None
        return RunStatus(state=state, cause=cause_in_ledger, attempt=attempt)

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Signal the supervisor to end the run, and wait until it has; kill it after the grace."""
        spec = run.spec()
        if not run.is_alive:
            raise UsageError(
                f"the run {run.name!r} is not running: it is {self.state(run).state}",
                remedy="`cloudrec status` shows the state of every run",
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

    def execute(
        self, run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
    ) -> int:
        """Run a command in the run's folder, with the variables of a rank."""
        del terminal  # it has this process's own
        spec = run.spec()
        check_rank(spec, rank)
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": spec.nproc_per_node}
        plan = plan_launch(run, spec, launch=max(last_launch(run.ledger.read()), 1))
        environment = {**os.environ, **plan.environment, **{key: str(each) for key, each in ranks.items()}}
        given = None if stdin else subprocess.DEVNULL
        try:
            done = subprocess.run(command, cwd=run.path, env=environment, stdin=given, check=False)
        except OSError as error:
            raise UsageError(
                f"{command[0]} cannot be started: {error.strerror}", remedy="name a program of this machine"
            ) from error
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    def collect(self, run: RunFolder, *, checkpoints: bool = False) -> Sequence[Skipped]:
        """Return no skipped files, and copy none: the trainer writes into the run's folder."""
        del run, checkpoints
        return ()


LAUNCHER = LocalLauncher()


def plan_launch(run: RunFolder, spec: RunSpec, *, launch: int) -> LaunchPlan:
    """Return the command, the environment and the files of one launch of a run.

    Every address is a loopback one: the ranks' communication stays on the machine.
    """
    elastic = (
        *(sys.executable, "-P", "-m", "cloudrec.launchers.local.elastic"),
        *("--nnodes", "1", "--nproc-per-node", str(spec.nproc_per_node)),
        *("--max-restarts", str(spec.max_restarts)),
        *("--rdzv-backend", "loopback", "--rdzv-endpoint", "127.0.0.1", "--rdzv-id", f"{run.name}-{launch}"),
        # `rank` writes the logs itself, so torchrun's are not needed.
        *("--local-addr", "127.0.0.1", "--log-dir", os.devnull, "--no-python"),
    )
    rank = (sys.executable, "-P", "-m", "cloudrec.launchers.local.rank", str(run.path), str(launch), "--")
    trainer = (*spec.trainer_command, "--config", str(run.config_file), "--output_dir", str(run.path))
    return LaunchPlan(
        command=(*elastic, *rank, *trainer, *spec.trainer_flags),
        environment=_environment(spec),
        files={run.config_file.name: yaml.safe_dump(dict(spec.trainer_config), sort_keys=False)},
    )


def _prepare(run: RunFolder, spec: RunSpec, *, launch: int) -> None:
    """Unpack the user's script and install its requirements, if that is what runs."""
    if spec.script is None:
        return
    make_private(run.logs)
    layers = run.path.parent.parent / "layers"
    folders = NodeFolders(run=run.path, layers=layers, environment=spec.environment)
    digest = spec.script.digest

    def say(line: str) -> None:
        with run.agent_log.open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")

    try:
        prepare(spec.script, folders, lambda: read_archive(run, digest), say)
    except CloudrecError as error:
        run.ledger.append("failed", launch=launch, cause=error.message)
        raise


def _environment(spec: RunSpec) -> dict[str, str]:
    loopback = "lo" if sys.platform == "linux" else "lo0"
    threads = max(1, (os.cpu_count() or 1) // spec.nproc_per_node)
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "PYTHONSAFEPATH": "1",  # for processes that the trainer starts; cloudrec's own commands have -P
        "PYTHONUNBUFFERED": "1",  # so that logs are complete at any time, also after a kill
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": _NEVER_S,
        **spec.environment,
    }


def take_lock(run: RunFolder) -> int:
    """Lock the run and return the descriptor of the lock; UsageError if another process holds it."""
    try:
        descriptor = open_lock(run.lock_file)
    except OSError as error:
        raise storage_error(run.lock_file, error) from error
    # `is_alive` of another process takes the lock for a moment, so one refusal proves nothing.
    give_up = time.monotonic() + _LOCK_WAIT_S
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
    """Start the supervisor in its own session; return its process id once its agent is started."""
    make_private(run.logs)
    ours, its = os.pipe()
    module = (
        "-P",
        "-m",
        "cloudrec.launchers.local.supervisor",
        str(run.path),
        str(launch),
        str(lock),
        str(its),
    )
    try:
        with run.agent_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *module],
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
    except BaseException:  # Ctrl-C too: a run that was not reported as started must not continue
        process.kill()
        process.wait()
        raise
    finally:
        os.close(ours)
    process.returncode = 0  # it outlives this process: suppress Popen's warning that it still runs
    return process.pid


def _await_start(run: RunFolder, pipe: int, *, launch: int) -> None:
    """Wait until the supervisor writes to the pipe; RunFailedError if it closes the pipe or is too slow."""
    readable = is_readable(pipe, timeout_s=_START_TIMEOUT_S)
    if readable and os.read(pipe, 16):
        return
    last_lines = outputs.read_tail(run.agent_log, limit=2000).strip() or "it printed nothing"
    cause = "its supervisor died while starting" if readable else "its supervisor did not start in time"
    run.ledger.append("failed", launch=launch, cause=cause)
    raise RunFailedError(
        f"the run {run.name!r} could not be started: {cause}:\n{last_lines}",
        remedy=f"read {run.agent_log}; when the cause is repaired: `cloudrec train --resume {run.name}`",
    )


def _signal_supervisor(run: RunFolder, number: signal.Signals) -> None:
    """Send a signal to the process that holds the run's lock, and to no other one.

    A process id from a file may belong to another process by now. If the lock is still held after the process
    is opened, then the process was the holder when it was opened, and the descriptor keeps naming it.
    """
    with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        pid = int(safe_object(read_text(run.lock_file))["pid"])
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
