"""The decisions of the local launcher that need no process."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from cloudrec.errors import MissingExtraError, UsageError
from cloudrec.launchers import launcher, launchers
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.local.launcher import LAUNCHER, LocalLauncher

if TYPE_CHECKING:
    from pathlib import Path

SPEC = RunSpec(
    name="one", nproc_per_node=2, trainer_config={"batch_size": 8}, trainer_flags=("--learning_rate", "1")
)


def test_the_local_launcher_is_found_and_an_unknown_one_is_not() -> None:
    assert launchers()["local"] is LAUNCHER
    with pytest.raises(UsageError, match="no launcher 'locall'") as refused:
        launcher("locall")
    assert "local" in (refused.value.remedy or "")


def test_a_missing_package_is_reported_with_its_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"'trainer'.*'no_such_module'"):
        LocalLauncher(needed=("os", "no_such_module")).preflight(SPEC)
    LocalLauncher(needed=("os",)).preflight(SPEC)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (replace(SPEC, nodes=2), "nodes is 2"),
        (replace(SPEC, trainer_flags=("--output_dir", "/x")), "--output_dir is set by cloudrec"),
        (replace(SPEC, trainer_flags=("--output-dir=/x",)), "--output_dir is set by cloudrec"),
        (replace(SPEC, trainer_flags=("--config=/x",)), "--config is set by cloudrec"),
    ],
)
def test_impossible_runs_are_refused_before_any_change(spec: RunSpec, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        LocalLauncher(needed=()).preflight(spec)


def test_a_dry_run_needs_no_folder_and_shows_command_environment_and_files(tmp_path: Path) -> None:
    run = RunFolder(path=tmp_path / "one")
    plan = LAUNCHER.dry_run(run, SPEC)
    assert not run.path.exists()
    assert plan.command[plan.command.index("--") + 1 :] == (
        *SPEC.trainer_command,
        *("--config", f"{run.path}/trainer.yaml", "--output_dir", str(run.path)),
        *("--learning_rate", "1"),
    )
    assert yaml.safe_load(plan.files["trainer.yaml"]) == {"batch_size": 8}
    assert plan.environment["OMP_NUM_THREADS"] == os.environ.get(
        "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2))
    )


def test_the_environment_of_the_user_overrides_that_of_the_launcher(tmp_path: Path) -> None:
    spec = replace(SPEC, environment={"OMP_NUM_THREADS": "7", "MINE": "x"})
    environment = LAUNCHER.dry_run(RunFolder(path=tmp_path), spec).environment
    assert (environment["OMP_NUM_THREADS"], environment["MINE"]) == ("7", "x")


@pytest.mark.parametrize("told", ["submitted", "started", "restarting", "running"])
def test_a_run_without_a_live_process_is_never_running(tmp_path: Path, told: str) -> None:
    run = create_run(tmp_path, SPEC)
    run.ledger.append(told, launch=1, pid=os.getpid())
    status = LAUNCHER.state(run)
    assert status.state is RunState.FAILED
    assert "its process is gone" in (status.cause or "")
    with pytest.raises(UsageError, match="not running: it is FAILED"):
        LAUNCHER.stop(run)


def test_a_lock_file_of_a_dead_process_does_not_make_a_run_running(tmp_path: Path) -> None:
    run = create_run(tmp_path, SPEC)
    run.lock_file.write_text(f'{{"pid": {os.getpid()}, "command": "another process"}}')
    run.ledger.append("started", launch=1)
    assert LAUNCHER.state(run).state is RunState.FAILED
    with pytest.raises(UsageError, match="not running"):
        LAUNCHER.stop(run)  # this process, whose id it names, is alive


def test_a_final_state_keeps_its_cause(tmp_path: Path) -> None:
    run = create_run(tmp_path, SPEC)
    run.ledger.append("interrupted", launch=1, cause="old")
    run.ledger.append("submitted", launch=2)
    run.ledger.append("rank_started", launch=2, attempt=2, rank=0)
    run.ledger.append("failed", launch=2, cause="new")
    assert LAUNCHER.state(run) == RunStatus(state=RunState.FAILED, cause="new", attempt=2)
