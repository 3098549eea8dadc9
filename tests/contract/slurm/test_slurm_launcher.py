"""The launcher `slurm` against a real Slurm: munge, slurmctld and two slurmd on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import CloudrecError, NoCapacityError, PreflightError, UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.ssh.shell import Done, SshShell
from cloudrec.launchers.slurm.launcher import LAUNCHER, JobAddress, run_of
from cloudrec.launchers.slurm.shell import LocalShell
from cloudrec.launchers.slurm.tools import Slurm
from tests.contract.slurm.support_slurm import (
    left_words,
    make_spec,
    new_run,
    running_slurm,
    running_sshd,
    wait_for,
    wait_for_line,
)


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[dict[str, str]]:
    with running_slurm("--ssh") as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


def test_a_run_on_two_nodes_is_entered_stopped_with_a_checkpoint_and_resumes_from_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = new_run(tmp_path, "two", nodes=2, steps=400, step_s=0.05)
    LAUNCHER.preflight(run.spec())
    handle = LAUNCHER.submit(run)
    assert run_of(tmp_path / "runs", JobAddress.parse(handle.id)) == run
    wait_for(run, RunState.RUNNING)
    wait_for_line(run, "rank 1 step 3", rank=1)
    with pytest.raises(UsageError, match="is RUNNING"):
        LAUNCHER.submit(run)

    # Commands run beside the ranks, each on the node of its rank.
    for rank in (0, 1):
        words = ["sh", "-c", "echo $SLURM_STEP_NODELIST; exit $((5 + RANK_HERE))"]
        code = LAUNCHER.execute(
            run, ["env", f"RANK_HERE={rank}", *words], rank=rank, stdin=False, terminal=False
        )
        out = capfd.readouterr()
        assert (code, out.out.strip()) == (5 + rank, f"n{rank + 1}"), out.err
    with pytest.raises(UsageError, match="ranks 0 to 1"):
        LAUNCHER.execute(run, ["true"], rank=2, stdin=False, terminal=False)

    status = LAUNCHER.stop(run)
    assert (status.state, status.cause) == (
        RunState.INTERRUPTED,
        f"stopped on request; the newest checkpoint is at step {_newest(run.path)}",
    ), left_words(run)
    assert LAUNCHER.job_status(JobAddress.parse(handle.id)).state is RunState.INTERRUPTED

    run.write_spec(replace(run.spec(), trainer_config={"steps": _newest(run.path) + 2}))
    LAUNCHER.submit(run)
    wait_for(run, RunState.SUCCEEDED)
    lines = list(LAUNCHER.logs(run, rank=1, follow=True))
    assert sum("rank 1 begins at step" in line for line in lines) == 2
    assert lines[-1] == "rank 1 has finished"
    assert list(LAUNCHER.logs(run, rank=1, follow=False, tail=1)) == ["rank 1 has finished"]
    with pytest.raises(UsageError, match="has finished"):
        LAUNCHER.submit(run)


def test_a_job_submitted_by_a_killed_process_is_resumed(tmp_path: Path) -> None:
    run = new_run(tmp_path, "orphan", steps=1, settings={"extra": {"hold": True}})
    first = LAUNCHER.submit(run)
    lines = run.ledger.path.read_text().splitlines(keepends=True)
    run.ledger.path.write_text(lines[0])  # the process was killed before it recorded sbatch's output
    assert LAUNCHER.submit(run) == first
    assert "held" in (LAUNCHER.state(run).cause or "")
    assert LAUNCHER.stop(run).state is RunState.INTERRUPTED


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"settings": {"partition": "night"}}, UsageError, ["no partition 'night'", "cpu, gpu"]),
        ({"settings": {"partition": "closed"}}, PreflightError, ["'closed' is down"]),
        ({"settings": {"time_limit": "2:00:00"}}, UsageError, ["2:00:00", "1:00:00", "'cpu'"]),
        ({"nodes": 3}, NoCapacityError, ["3 nodes", "'cpu' has 2 nodes with 0 GPUs"]),
        (
            {"nodes": 2, "settings": {"partition": "gpu", "gpus_per_node": 8}},
            NoCapacityError,
            ["2 nodes with 8 GPUs", "'gpu' has 2 nodes with 4 GPUs"],
        ),
        ({"settings": {"constraint": "fast"}}, UsageError, ["Invalid feature", "constraint"]),
        (
            {"settings": {"gpu_type": "h100", "gpus_per_node": 1, "partition": "gpu"}},
            NoCapacityError,
            ["configuration is not available", "GPUs"],
        ),
        ({"settings": {"partitoin": "cpu"}}, UsageError, ["'partitoin'", "did you mean partition?"]),
        ({"settings": {"extra": {"array": "1-3"}}}, UsageError, ["extra", "array"]),
        ({"settings": {"container_image": "x.sqsh"}}, PreflightError, ["pyxis", "apptainer"]),
    ],
)
def test_missing_resources_are_refused_before_submission(
    asked: dict[str, Any], error: type[CloudrecError], words: list[str]
) -> None:
    with pytest.raises(error) as refused:
        LAUNCHER.preflight(make_spec("refused", **asked))
    said = f"{refused.value.message} {refused.value.remedy}"
    assert [word for word in words if word not in said] == [], said


def test_an_invalid_account_is_reported_with_the_remedy() -> None:
    said = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination"
    refusal = Slurm(shell=LocalShell()).refusal("sbatch", Done(code=1, out=b"", err=said))
    assert isinstance(refusal, UsageError)
    assert "--account" in str(refusal.remedy)


def test_a_job_that_does_not_exist_is_reported() -> None:
    with pytest.raises(UsageError, match="knows no job 99999"):
        LAUNCHER.job_status(JobAddress.parse("slurm://99999"))
    with pytest.raises(UsageError, match="is no address of a Slurm job"):
        JobAddress.parse("slurm://host/latest")


def test_missing_slurm_commands_and_an_unreachable_controller_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = tmp_path / "slurm.conf"
    text = Path(os.environ["SLURM_CONF"]).read_text()
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    down.write_text(text.replace(port, "SlurmctldPort=1").replace("MessageTimeout=10", "MessageTimeout=1"))
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", str(down))
        with pytest.raises(PreflightError, match="controller does not answer this machine"):
            LAUNCHER.preflight(make_spec("down"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="Slurm is not installed on this machine"):
        LAUNCHER.preflight(make_spec("absent"))


@pytest.mark.parametrize(
    "crashes", [[{"rank": 0, "attempt": 0, "step": 2, "how": 64}], pytest.param([], marks=pytest.mark.soak)]
)
def test_a_run_is_launched_watched_and_fetched_through_a_login_node(
    tmp_path: Path, slurm: dict[str, str], crashes: list[dict[str, Any]]
) -> None:
    variables = {
        **slurm,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "CLOUDREC_HOME": str(tmp_path / "there"),
    }
    with running_sshd(tmp_path, variables) as config:
        settings = {"host": "login", "ssh_config": str(config)}
        with pytest.raises(PreflightError, match=r"refuses us.*Permission denied"):
            LAUNCHER.preflight(make_spec("key", settings={**settings, "host": "strange"}))
        try:
            there = {**settings, "python": sys.executable}
            run = new_run(tmp_path / "here", "remote", settings=there, crashes=crashes)
            LAUNCHER.preflight(run.spec())
            assert LAUNCHER.submit(run).id.startswith("slurm://login/")
            lines = list(LAUNCHER.logs(run, rank=0, follow=True))
            assert lines[-1] == ("error: asked to fail at step 2" if crashes else "rank 0 has finished")
            status = LAUNCHER.state(run)
            refused = "n1: bad configuration: rank 0: asked to fail at step 2"
            expected = (RunState.FAILED, refused) if crashes else (RunState.SUCCEEDED, None)
            assert (status.state, status.cause) == expected
            LAUNCHER.collect(run)
            assert '"step": 1' in run.metrics_file.read_text()
            assert list(run.path.glob("pods/*/rank-0.log"))
            assert run.summary_file.exists() is not bool(crashes)
        finally:
            SshShell(host="login", config=str(config)).close()
    with pytest.raises(PreflightError, match=r"cannot be reached.*Connection refused"):
        LAUNCHER.preflight(make_spec("gone", settings=settings))


def _newest(folder: Path) -> int:
    committed = folder.glob("checkpoints/step-*/commit-*.json")
    return max(int(path.parent.name.removeprefix("step-")) for path in committed)
