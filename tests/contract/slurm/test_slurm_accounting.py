"""The launcher `slurm` with accounting: a real slurmdbd with a database, and a short job retention."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.ssh.shell import SshShell
from cloudrec.launchers.slurm.launcher import LAUNCHER, JobAddress, SlurmLauncher
from tests.contract.slurm.support_slurm import (
    PATIENCE_S,
    left_words,
    make_spec,
    new_run,
    running_slurm,
    running_sshd,
    wait_for_line,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
LONG: dict[str, Any] = {"steps": 4000, "step_s": 0.05}
SLURMS_GRACE_S = 20.0  # of the partition, see scripts/slurm_cluster.py
STAY: dict[str, Any] = {"settings": {"requeue": False, "account": "ads"}}


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[dict[str, str]]:
    options = ("--accounting", "--ssh", "--min-job-age", "2", "--cpus", "2")
    with running_slurm(*options) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


def _run_tool(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _job(run: RunFolder) -> int:
    told = [event.details["job"] for event in run.ledger.read() if event.event == "started"]
    return JobAddress.parse(told[-1]).job


def _cancel(run: RunFolder) -> None:
    _run_tool("scancel", str(_job(run)))


def _fail_node(run: RunFolder) -> None:
    node = _run_tool("squeue", "--noheader", f"--jobs={_job(run)}", "--format=%N").strip()
    _run_tool("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def _preempt(_run: RunFolder) -> None:
    words = ["--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3"]
    _run_tool("sbatch", *words)


def _end_its_time(run: RunFolder) -> None:
    _run_tool("scontrol", "update", f"jobid={_job(run)}", f"EndTime={time.strftime('%FT%T')}")


def _await_oblivion(run: RunFolder) -> None:
    """Wait until the queue has purged the run's job, and remove the records of its end from its folder."""
    words = ["squeue", "--noheader", "--states=all", f"--jobs={_job(run)}"]
    give_up = time.monotonic() + PATIENCE_S
    while subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip():
        assert time.monotonic() < give_up, left_words(run)
        time.sleep(0.2)
    for told in (run.path / "slurm").glob("end.*"):
        told.unlink()


@pytest.mark.parametrize(
    ("disturb", "grace_s", "state", "cause"),
    [
        (_cancel, 20.0, RunState.INTERRUPTED, "it was cancelled by scancel of the user root; "),
        (_fail_node, 20.0, RunState.FAILED, "one of its nodes failed (of n1)"),
        (_preempt, 15.0, RunState.INTERRUPTED, "asked to end; "),  # within Slurm's grace period
        (_preempt, 90.0, RunState.INTERRUPTED, "another job took its nodes; "),
        (_end_its_time, 20.0, RunState.INTERRUPTED, "its time was up: it might take "),
    ],
)
def test_the_result_of_a_purged_job_is_read_from_accounting(
    tmp_path: Path, disturb: Callable[[RunFolder], None], grace_s: float, state: RunState, cause: str
) -> None:
    lasting = grace_s > SLURMS_GRACE_S
    run = new_run(tmp_path, f"e{disturb.__name__.replace('_', '-')}", **LONG, **STAY, ignore_stop=lasting)
    run.write_spec(replace(run.spec(), stop_grace_s=grace_s))
    LAUNCHER.preflight(run.spec())
    handle = LAUNCHER.submit(run)
    wait_for_line(run, "rank 0 step 7")
    disturb(run)
    _await_oblivion(run)
    status = LAUNCHER.state(run)
    assert status.state is state, (status, left_words(run))
    assert (status.cause or "").startswith(cause), status
    assert state is RunState.FAILED or "the newest checkpoint is at step" in (status.cause or "")
    by_address = LAUNCHER.job_status(JobAddress.parse(handle.id))
    assert by_address.state is state
    subprocess.run(
        ["scontrol", "update", "nodename=n[1-2]", "state=resume"], check=False, capture_output=True
    )


def test_a_purged_job_that_was_requeued_is_reported_with_its_restarts(tmp_path: Path) -> None:
    run = new_run(tmp_path, "again", steps=60, step_s=0.05)
    LAUNCHER.submit(run)
    wait_for_line(run, "rank 0 step 7")
    _run_tool("scontrol", "requeue", str(_job(run)))
    wait_for_line(run, "rank 0 has finished")
    _await_oblivion(run)
    status = LAUNCHER.state(run)
    assert (status.state, status.cause, status.preemptions) == (RunState.SUCCEEDED, None, 1), left_words(run)


def test_a_purged_job_with_an_empty_folder_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    run = new_run(tmp_path, "emptied", crashes=[{"rank": 0, "attempt": 0, "step": 2, "how": 64}])
    LAUNCHER.submit(run)
    wait_for_line(run, "asked to fail")
    _await_oblivion(run)
    shutil.rmtree(run.path / "pods")
    status = LAUNCHER.state(run)
    assert status.state is RunState.FAILED
    assert (status.cause or "").startswith("its job is FAILED with exit code 64"), status


def test_the_result_is_unknown_without_accounting_unless_the_folder_records_it(
    tmp_path: Path, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path, "down", steps=2)
    LAUNCHER.submit(run)
    wait_for_line(run, "rank 0 has finished")
    _await_oblivion(run)
    text = Path(slurm["SLURM_CONF"]).read_text()
    port = next(line for line in text.splitlines() if line.startswith("AccountingStoragePort="))
    (down := tmp_path / "slurm.conf").write_text(text.replace(port, "AccountingStoragePort=1"))
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", str(down))
        status = LAUNCHER.state(run)
        assert not status.state.is_final
        assert "accounting does not answer" in (status.cause or "")
        assert "Connection refused" in (status.cause or "")
    end = run.path / "slurm" / "end.1"
    end.write_text("0\n")
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", str(down))
        assert SlurmLauncher().state(run).state is RunState.SUCCEEDED  # it keeps no records


@pytest.mark.parametrize("account", ["nope", "research"])
def test_an_account_without_permission_is_refused_with_the_permitted_accounts(account: str) -> None:
    with pytest.raises(UsageError, match=f"root may not use the account '{account}'") as refused:
        LAUNCHER.preflight(make_spec("refused", settings={"account": account}))
    assert "--account: ads, " in str(refused.value.remedy)
    assert str(refused.value.remedy).endswith("root")
    assert _run_tool("squeue", "--noheader", "--name=refused.1") == ""


def test_accounts_and_the_result_of_a_purged_job_are_read_through_a_login_node(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    run = new_run(tmp_path, "elsewhere", settings={"extra": {"hold": True}})
    job = JobAddress.parse(LAUNCHER.submit(run).id).job
    _cancel(run)
    _await_oblivion(run)
    with running_sshd(tmp_path, slurm) as config:
        settings = {"host": "login", "ssh_config": str(config)}
        try:
            status = LAUNCHER.job_status(JobAddress(job=job, host="login"), ssh_config=str(config))
            assert status.cause == "it was cancelled by scancel of the user root"
            with pytest.raises(UsageError, match="root may not use the account 'nope' of Slurm on login"):
                LAUNCHER.preflight(make_spec("far", settings={**settings, "account": "nope"}))
        finally:
            SshShell(host="login", config=str(config)).close()


def test_an_account_for_one_partition_is_refused_in_another() -> None:
    _run_tool("sacctmgr", "--immediate", "add", "account", "night", "Cluster=cloudrec")
    limit = ("Account=night", "Cluster=cloudrec", "Partition=urgent")
    _run_tool("sacctmgr", "--immediate", "add", "user", "root", *limit)
    try:
        with pytest.raises(UsageError, match="'night' in partition 'cpu'") as refused:
            LAUNCHER.preflight(make_spec("night", settings={"account": "night"}))
        assert "--partition: urgent" in str(refused.value.remedy)
        LAUNCHER.preflight(make_spec("night", settings={"account": "night", "partition": "urgent"}))
    finally:
        _run_tool("sacctmgr", "--immediate", "delete", "account", "night", "Cluster=cloudrec")


def test_a_user_without_any_account_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stranger = tmp_path / "id"
    stranger.write_text("#!/bin/sh\necho stranger\n")
    stranger.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(UsageError, match="stranger has no account at Slurm on this machine"):
        LAUNCHER.preflight(make_spec("stranger"))
