"""The local launcher with real processes: torch's elastic agent and the fake trainer."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from cloudrec.errors import RunFailedError, UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder, create_run, newest_checkpoint
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.local.launcher import LAUNCHER, _start_supervisor
from cloudrec.observe.logs import read_logs
from cloudrec.observe.page.report import render_report
from cloudrec.observe.runs import view_run
from cloudrec.observe.status import wait_for_end, watch_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAKE_TRAINER = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))
LONG = {"steps": 100_000}  # more than any test waits for
SECONDS = 300.0  # only a hang takes this long


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for runs; their remaining processes are killed at the end."""
    yield tmp_path / "runs"
    for path in (tmp_path / "runs").glob("*"):
        run = RunFolder(path=path)
        if run.is_alive:
            os.kill(_supervisor(run).pid, signal.SIGKILL)
            wait_for_end(run, timeout_s=SECONDS)


def _spec(config: dict[str, Any], **changes: Any) -> RunSpec:
    spec = RunSpec(
        name="try", nproc_per_node=2, max_restarts=1, trainer_config=config, trainer_command=FAKE_TRAINER
    )
    return replace(spec, **changes)


def _launch(runs: Path, config: dict[str, Any], **changes: Any) -> RunFolder:
    run = create_run(runs, _spec(config, **changes))
    LAUNCHER.submit(run)
    return run


def _wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.02)


def _end(run: RunFolder) -> RunStatus:
    return wait_for_end(run, timeout_s=SECONDS)


def _entries(run: RunFolder, event: str) -> list[dict[str, Any]]:
    return [dict(entry.details) for entry in run.ledger.read() if entry.event == event]


def _supervisor(run: RunFolder) -> psutil.Process:
    return psutil.Process(_entries(run, "started")[-1]["pid"])


def _steps_done(run: RunFolder) -> list[int]:
    last = [list(read_logs(run, rank=rank, tail=1)) for rank in range(run.spec().world_size)]
    found = [re.fullmatch(r"rank \d+ step (\d+)", "".join(lines)) for lines in last]
    return [int(match[1]) if match else 0 for match in found]


def _wait_for_step(run: RunFolder, step: int) -> None:
    """Wait until every rank has reached a step; only rank 0 writes metrics, so the logs show the others."""
    _wait_until(lambda: min(_steps_done(run)) >= step)


def test_a_run_succeeds_with_logs_a_step_and_a_checkpoint(runs: Path) -> None:
    run = _launch(runs, {"steps": 12})
    assert _end(run) == RunStatus(state=RunState.SUCCEEDED)
    view = view_run(run)
    assert (view.step, view.auc, view.checkpoint, view.restarts, view.pid) == (12, 0.75, 12, 0, None)
    said = [line for line in read_logs(run, rank=1) if line.startswith("rank")]
    assert (said[-1], {line.split()[1] for line in said}) == ("rank 1 has finished", {"1"})
    with pytest.raises(UsageError, match="has finished"):
        LAUNCHER.submit(run)


def test_a_dry_run_shows_the_command_that_is_run(runs: Path) -> None:
    spec = _spec({"steps": 1}, trainer_flags=("--steps", "2"))
    plan = LAUNCHER.dry_run(RunFolder(path=runs / spec.name), spec)
    assert not runs.exists()
    run = create_run(runs, spec)
    LAUNCHER.submit(run)
    assert _end(run).state is RunState.SUCCEEDED
    assert _entries(run, "started")[0]["command"] == list(plan.command)
    assert {path: (run.path / path).read_text() for path in plan.files} == plan.files
    assert view_run(run).step == 2  # the flag overrides the file


def test_a_run_starts_from_a_process_with_more_than_1024_open_files(runs: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        run = _launch(runs, {"steps": 2})
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert _end(run).state is RunState.SUCCEEDED


def test_a_run_listens_on_loopback_only(runs: Path) -> None:
    run = _launch(runs, LONG)
    _wait_for_step(run, 1)
    family = [_supervisor(run), *_supervisor(run).children(recursive=True)]
    listening = [c.laddr.ip for p in family for c in p.net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening
    assert set(listening) == {"127.0.0.1"}
    assert ">RUNNING<" in render_report(run)


def test_a_detached_run_survives_its_terminal(runs: Path) -> None:
    run = create_run(runs, _spec({"steps": 40, "step_s": 0.05}))
    code = (
        "import sys, time; from pathlib import Path;"
        "from cloudrec.launchers.base.run_folder import RunFolder;"
        "from cloudrec.launchers.local.launcher import LAUNCHER;"
        "LAUNCHER.submit(RunFolder(path=Path(sys.argv[1]))); print('under way', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, start_new_session=True
    ) as terminal:
        assert terminal.stdout is not None
        assert terminal.stdout.readline() == b"under way\n"
        os.killpg(terminal.pid, signal.SIGHUP)
    assert terminal.returncode == -signal.SIGHUP
    assert _end(run).state is RunState.SUCCEEDED


def test_a_run_whose_launcher_is_killed_while_it_waits_for_the_supervisor_succeeds(runs: Path) -> None:
    run = create_run(runs, _spec({"steps": 3}))
    code = (
        "import sys; from pathlib import Path;"
        "from cloudrec.launchers.base.run_folder import RunFolder;"
        "from cloudrec.launchers.local.launcher import LAUNCHER;"
        "LAUNCHER.submit(RunFolder(path=Path(sys.argv[1])))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)]) as terminal:
        _wait_until(lambda: psutil.Process(terminal.pid).children())
        terminal.kill()  # the supervisor imports for longer than this takes
    _wait_until(lambda: _entries(run, "started"))
    assert _end(run).state is RunState.SUCCEEDED


def test_a_killed_supervisor_leaves_no_process_and_a_resumable_run(runs: Path) -> None:
    run = _launch(runs, {"steps": 500, "step_s": 0.02})
    _wait_for_step(run, 6)
    family = _supervisor(run).children(recursive=True)
    assert len(family) == 5  # the elastic agent, and for each of two ranks its parent and its trainer
    _supervisor(run).kill()
    _, left = psutil.wait_procs(family, timeout=300)
    assert left == []
    assert LAUNCHER.state(run).state is RunState.FAILED
    assert "its process is gone" in (view_run(run).cause or "")
    checkpoint = newest_checkpoint(run.path / "checkpoints")
    LAUNCHER.submit(run)
    assert _end(run).state is RunState.SUCCEEDED
    assert f"rank 0 begins at step {checkpoint}" in list(read_logs(run))
    assert view_run(run).launches == 2


@pytest.mark.parametrize("victim", ["trainer", "its parent"])
def test_a_killed_worker_is_restarted_and_resumes_from_the_newest_checkpoint(runs: Path, victim: str) -> None:
    run = _launch(runs, {"steps": 500, "step_s": 0.02})
    _wait_for_step(run, 6)
    trainer = psutil.Process(
        next(entry["pid"] for entry in _entries(run, "rank_started") if entry["rank"] == 1)
    )
    parent = trainer.parent()
    assert parent is not None
    (trainer if victim == "trainer" else parent).kill()
    states = [item.state for item in watch_run(run, tail=0) if isinstance(item, RunStatus)]
    assert states[-1] is RunState.SUCCEEDED
    assert [event.event for event in run.ledger.read() if event.event in ("restarting", "running")] == [
        "restarting",
        "running",
    ]
    assert view_run(run).restarts == 1
    begun = [line for line in read_logs(run) if "begins at step" in line]
    assert begun[0] == "rank 0 begins at step 0"
    assert int(begun[1].rsplit(" ", 1)[1]) >= 5


def test_crashes_beyond_the_restart_limit_fail_the_run_with_the_cause(runs: Path) -> None:
    crashes = [
        {"rank": 1, "attempt": 0, "step": 3, "how": "kill"},
        {"rank": 0, "attempt": 1, "step": 1, "how": 3},
    ]
    run = _launch(runs, {**LONG, "crashes": crashes})
    status = _end(run)
    step = (newest_checkpoint(run.path / "checkpoints") or 0) + 1
    assert status == RunStatus(
        state=RunState.FAILED,
        cause=f"rank 0 ended with exit code 3: asked to fail at step {step}"
        " (after 1 restart; the limit is 1)",
        attempt=1,
    )
    assert "rank 1 was killed by SIGKILL" in _entries(run, "restarting")[0]["cause"]
    assert _entries(run, "failed")[0]["exit_codes"]["0"] == 3


@pytest.mark.parametrize(("code", "meaning"), [(64, "bad configuration"), (65, "bad data")])
def test_an_invalid_configuration_is_not_retried(runs: Path, code: int, meaning: str) -> None:
    crashes = [{"rank": 0, "attempt": 0, "step": 2, "how": code}]
    run = _launch(runs, {**LONG, "crashes": crashes}, max_restarts=3)
    assert _end(run) == RunStatus(
        state=RunState.FAILED,
        cause=f"rank 0 ended with exit code {code} ({meaning}): asked to fail at step 2",
    )
    assert _entries(run, "restarting") == []


def test_a_stopped_run_keeps_a_checkpoint_and_resumes_from_it(runs: Path) -> None:
    run = _launch(runs, {"steps": 1000, "step_s": 0.02, "checkpoint_interval": 1000})
    _wait_for_step(run, 3)
    status = LAUNCHER.stop(run)
    step = newest_checkpoint(run.path / "checkpoints")
    assert status.state is RunState.INTERRUPTED
    assert status.cause == f"stopped on request; the newest checkpoint is at step {step}"
    assert not run.is_alive
    with pytest.raises(UsageError, match="is not running: it is INTERRUPTED"):
        LAUNCHER.stop(run)
    LAUNCHER.submit(run)
    assert _end(run).state is RunState.SUCCEEDED
    assert f"rank 0 begins at step {step}" in list(read_logs(run))


def test_two_concurrent_stops_are_harmless(runs: Path) -> None:
    run = _launch(runs, LONG)
    _wait_for_step(run, 1)
    os.kill(_supervisor(run).pid, signal.SIGTERM)  # the effect of `stop`, without waiting for the end
    with_second = LAUNCHER.stop(run) if run.is_alive else LAUNCHER.state(run)
    assert with_second.state is RunState.INTERRUPTED
    assert _entries(run, "rank_ended")[-1]["exit_code"] == 75


def test_a_stop_before_the_trainer_has_started_leaves_nothing_behind(runs: Path) -> None:
    run = _launch(runs, LONG)
    family = _supervisor(run).children(recursive=True)
    assert LAUNCHER.stop(run).state is RunState.INTERRUPTED
    assert not any(process.is_running() for process in family)
    assert not run.rank_log(0).exists()


def test_a_trainer_that_ignores_the_stop_is_killed_after_the_grace_period(runs: Path) -> None:
    run = _launch(runs, {**LONG, "ignore_stop": True})
    _wait_for_step(run, 12)
    family = _supervisor(run).children(recursive=True)
    status = LAUNCHER.stop(run, grace_s=1)
    assert status.state is RunState.INTERRUPTED
    assert "killed when it had not ended within 1 s; the newest checkpoint is at step" in (status.cause or "")
    assert not any(process.is_running() for process in family)


def test_a_preemption_interrupts_the_run_without_a_restart(runs: Path) -> None:
    run = _launch(runs, LONG, max_restarts=3)
    _wait_for_step(run, 3)
    for entry in _entries(run, "rank_started"):
        os.kill(entry["pid"], signal.SIGTERM)  # like a preemption notice; no stop was requested
    status = _end(run)
    assert status.state is RunState.INTERRUPTED
    assert (status.cause or "").startswith("stopped by a signal from outside; the newest checkpoint")
    assert _entries(run, "restarting") == []


def test_a_live_run_is_not_started_a_second_time(runs: Path) -> None:
    run = _launch(runs, LONG)
    with pytest.raises(UsageError, match="is running"):
        LAUNCHER.submit(run)
    with pytest.raises(UsageError, match="a run named 'try' exists already"):
        create_run(runs, _spec(LONG))
    assert len(_entries(run, "submitted")) == 1
    assert run.is_alive


def test_logs_follow_a_rank_across_a_restart_until_the_run_ends(runs: Path) -> None:
    crashes = [{"rank": 1, "attempt": 0, "step": 6, "how": 1}]
    run = _launch(runs, {"steps": 60, "step_s": 0.02, "crashes": crashes})
    lines = list(read_logs(run, rank=1, follow=True))  # the log is not there yet when this begins
    attempts = [line.split(",")[1] for line in lines if line.startswith("===")]
    assert attempts == [" attempt 0", " attempt 1"], (lines, run.ledger.read())
    assert lines[-1] == "rank 1 has finished"
    assert sum(line.startswith("error: asked to fail at step ") for line in lines) == 1
    assert list(read_logs(run, rank=1, tail=2)) == lines[-2:]


def test_child_processes_that_outlive_the_trainer_are_ended(runs: Path) -> None:
    crashes = [{"rank": 0, "attempt": 0, "step": 2, "how": "kill"}]
    run = _launch(runs, {"steps": 20, "crashes": crashes, "helper": True}, nproc_per_node=1)
    assert _end(run).state is RunState.SUCCEEDED
    helpers = [int(line.split(" ")[1]) for line in read_logs(run) if line.startswith("helper ")]
    assert len(helpers) == 2
    assert not any(psutil.pid_exists(helper) for helper in helpers)


def test_a_killed_elastic_agent_fails_the_run_without_orphaned_processes(runs: Path) -> None:
    run = _launch(runs, LONG)
    _wait_for_step(run, 1)
    family = _supervisor(run).children(recursive=True)
    _supervisor(run).children()[0].kill()
    assert _end(run) == RunStatus(state=RunState.FAILED, cause="the elastic agent was killed by SIGKILL")
    assert not any(process.is_running() for process in family)


def test_a_trainer_that_cannot_be_started_is_reported(runs: Path) -> None:
    run = _launch(runs, {}, trainer_command=("/nowhere/trainer",))
    status = _end(run)
    assert status.state is RunState.FAILED
    assert "cannot start /nowhere/trainer: No such file or directory" in (status.cause or "")


def test_a_supervisor_that_fails_at_startup_is_reported_with_its_last_output(runs: Path) -> None:
    run = create_run(runs, _spec({}))
    run.spec_file.write_text("{}")
    lock = os.open(run.lock_file, os.O_RDWR | os.O_CREAT)
    with pytest.raises(RunFailedError, match=r"died while starting:\n(.*\n)*.*schema version is None"):
        _start_supervisor(run, launch=1, lock=lock)
    os.close(lock)
    assert LAUNCHER.state(run) == RunStatus(state=RunState.FAILED, cause="its supervisor died while starting")


def test_two_concurrent_runs_do_not_affect_each_other(runs: Path) -> None:
    both = [_launch(runs, {"steps": 10}, name=name, nproc_per_node=1) for name in ("one", "two")]
    assert [_end(run).state for run in both] == [RunState.SUCCEEDED, RunState.SUCCEEDED]


def test_a_command_has_the_folder_and_the_variables_of_a_rank(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = _launch(runs, LONG, environment={"OF_THE_RUN": "yes"})
    words = ["sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $OF_THE_RUN; pwd; exit 9"]
    assert LAUNCHER.execute(run, words, rank=1, stdin=False, terminal=False) == 9
    assert capfd.readouterr().out.splitlines() == ["1 1 2 yes", str(run.path)]
    assert LAUNCHER.execute(run, ["sh", "-c", "kill -9 $$"], rank=0, stdin=False, terminal=False) == 137
    with pytest.raises(UsageError, match="no-such-program cannot be started"):
        LAUNCHER.execute(run, ["no-such-program"], rank=0, stdin=False, terminal=False)
    with pytest.raises(UsageError, match="ranks 0 to 1"):
        LAUNCHER.execute(run, ["true"], rank=2, stdin=False, terminal=False)
    LAUNCHER.stop(run)
