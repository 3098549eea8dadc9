"""The launcher `slurm` without a Slurm: settings, addresses, scripts and job states."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import SpecError, UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.base.ssh.shell import ShellUnreachableError
from cloudrec.launchers.slurm.address import JobAddress
from cloudrec.launchers.slurm.jobs import Job
from cloudrec.launchers.slurm.run_state import SlurmSnapshot, judge
from cloudrec.launchers.slurm.script import JobScript, job_script
from cloudrec.launchers.slurm.settings import SlurmSettings, seconds_of
from cloudrec.launchers.slurm.shell import LocalShell


def script(settings: dict[str, Any] | None = None, *, gpus: int = 0, **asked: Any) -> JobScript:
    spec = RunSpec(name="run", launcher="slurm", settings=settings or {}, **asked)
    return job_script(spec, SlurmSettings.of(spec.settings), root="/shared", launch=2, gpus=gpus)


def directives(made: JobScript) -> list[str]:
    lines = made.text().splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_a_missing_slurm_conf_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "sinfo"
    tool.write_text("#!/bin/sh\nsleep 60\n")  # as Slurm's own, which continues looking
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with pytest.raises(ShellUnreachableError, match=r"SLURM_CONF names .*slurm\.conf, which does not exist"):
        LocalShell().run(["sinfo"], timeout_s=30)


def test_requests_become_sbatch_options() -> None:
    settings = {
        "partition": "gpu",
        "account": "ads",
        "qos": "high",
        "time_limit": "1-12",
        "gpu_type": "h100",
        "constraint": "ib&nvme",
        "memory_gib": 512,
        "exclusive": True,
        "requeue": False,
        "extra": {"mail-type": "END", "spread-job": True},
    }
    assert directives(script(settings, gpus=8, nodes=4, nproc_per_node=8, stop_grace_s=90.5)) == [
        "--job-name=run.2",
        "--partition=gpu",
        "--account=ads",
        "--qos=high",
        "--time=1-12",
        "--constraint=ib&nvme",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--cpus-per-task=8",
        "--gres=gpu:h100:8",
        "--mem=512G",
        "--exclusive",
        "--signal=TERM@91",
        "--no-requeue",
        "--output=/shared/runs/run/slurm/job.2.out",
        "--open-mode=append",
        "--chdir=/shared/runs/run",
        "--mail-type=END",
        "--spread-job",
    ]


def test_an_elastic_run_continues_when_nodes_fail() -> None:
    made = script(nodes=4, min_nodes=2)
    assert {"--nodes=2-4", "--no-kill"} <= set(directives(made))
    assert {"--no-kill", "--kill-on-bad-exit=0", "--wait=0"} <= set(made.srun)
    assert made.command[made.command.index("--nnodes") + 1] == "2:4"


def test_values_reach_the_nodes_unchanged() -> None:
    odd = 'it\'s $(rm -rf /) `x` "y" \\ ; \n#SBATCH --array=1-9'
    made = script(environment={"ODD": odd}, trainer_flags=("--note", odd))
    read_by_sbatch = made.text().partition("\nset -u\n")[0]  # up to the first command
    assert "array" not in read_by_sbatch
    bash = shutil.which("bash")
    assert bash is not None
    lines = made.text().partition("while :; do")
    exports = lines[0].partition("export CLOUDREC_RUN")[2]
    told = subprocess.run(
        [bash, "-c", f'export CLOUDREC_RUN{exports}\nprintf %s "$ODD"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == odd
    assert subprocess.run([bash, "-n"], input=made.text(), text=True, check=False).returncode == 0


def test_containers_are_started_by_the_selected_runtime() -> None:
    image = {"container_image": "/images/run.sqsh", "container_mounts": "/data:/data"}
    pyxis = script(image, gpus=1)
    assert "--container-image=/images/run.sqsh" in pyxis.srun
    assert "--container-mounts=/shared:/shared,/data:/data" in pyxis.srun
    assert pyxis.command[:4] == ("python", "-P", "-m", "cloudrec.agent")
    apptainer = script({**image, "container_runtime": "apptainer"}, gpus=1)
    expected = ("apptainer", "exec", "--nv", "--bind", "/shared:/shared", "--bind", "/data:/data")
    assert apptainer.command[:8] == (*expected, "/images/run.sqsh")
    assert "command -v apptainer" in apptainer.text()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partitoin": "gpu"}, "did you mean partition?"),
        ({"time_limit": "soon"}, "is no time of Slurm's"),
        ({"partition": "a b"}, "may contain no space"),
        ({"account": "x\n#SBATCH --array=1"}, "may contain no space"),
        ({"host": "-oProxyCommand=x"}, "is no user@host"),
        ({"gpus_per_node": "8"}, "valid integer"),
        ({"extra": {"array": "1-3"}}, "array"),
        ({"extra": {"Bad Name": "1"}}, "is a word such as"),
        ({"container_runtime": "docker"}, "'pyxis' or 'apptainer'"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as refused:
        SlurmSettings.of(settings)
    assert words in f"{refused.value.message} {refused.value.remedy}"


def test_a_folder_that_cannot_be_passed_to_sbatch_is_refused() -> None:
    spec = RunSpec(name="run")
    with pytest.raises(SpecError, match="contains a space"):
        job_script(spec, SlurmSettings(), root="/home/a b", launch=1, gpus=0).text()


def test_slurm_time_limits_are_parsed() -> None:
    limits = {"90": 5400, "2:30": 150, "2:30:00": 9000, "1-12": 129600, "1-0:30:05": 88205}
    assert {text: seconds_of(text) for text in limits} == limits
    assert seconds_of("infinite") == float("inf")


def test_a_job_address_round_trips() -> None:
    for text in ("slurm://7", "slurm://user@login.site/7", "slurm://login/42"):
        assert str(JobAddress.parse(text)) == text
    for text in ("slurm://", "slurm://host/", "slurm://-oX/7", "slurm://a/b/7", "7"):
        with pytest.raises(UsageError, match="is no address of a Slurm job"):
            JobAddress.parse(text)


@pytest.mark.parametrize(
    ("state", "seen", "expected", "words"),
    [
        ("PENDING", {}, RunState.PENDING, None),
        ("RUNNING", {}, RunState.RUNNING, None),
        ("REQUEUED", {}, RunState.RESTARTING, "put back"),
        ("COMPLETED", {"finished": True}, RunState.SUCCEEDED, None),
        ("COMPLETED", {}, RunState.FAILED, "no summary.json"),
        ("PREEMPTED", {}, RunState.INTERRUPTED, "another job took its nodes"),
        ("TIMEOUT", {"checkpoint": "the newest checkpoint is at step 7"}, RunState.INTERRUPTED, "at step 7"),
        ("CANCELLED", {}, RunState.INTERRUPTED, "scancel"),
        ("CANCELLED", {"stop_asked": True}, RunState.INTERRUPTED, "stopped on request"),
        ("NODE_FAIL", {}, RunState.FAILED, "one of its nodes failed"),
        ("OUT_OF_MEMORY", {}, RunState.FAILED, "memory_gib"),
        ("FAILED", {"cause": "n1: bad data"}, RunState.FAILED, "n1: bad data"),
        ("FAILED", {"script_code": 75}, RunState.INTERRUPTED, "asked to end"),
    ],
)
def test_a_job_state_is_mapped_to_a_run_state(
    state: str, seen: dict[str, Any], expected: RunState, words: str | None
) -> None:
    status = judge(SlurmSnapshot(job=Job(id=7, state=state), **seen))
    assert status.state is expected
    assert status.cause is None if words is None else words in (status.cause or "")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            Job(id=7, state="CANCELLED", cancelled_by="ann"),
            "it was cancelled by scancel of the user ann",
        ),
        (Job(id=7, state="TIMEOUT", limit="1-12:00:00"), "its time was up: it might take 1-12:00:00"),
        (Job(id=7, state="NODE_FAIL", nodes="n[3-4]"), "one of its nodes failed (of n[3-4])"),
    ],
)
def test_the_cause_of_a_job_end_is_reported(job: Job, expected: str) -> None:
    assert judge(SlurmSnapshot(job=job)).cause == expected


def test_a_requeued_job_is_restarting_with_the_reason() -> None:
    status = judge(SlurmSnapshot(job=Job(id=7, state="PENDING", reason="BeginTime", restarts=1)))
    assert status.state is RunState.RESTARTING
    assert "waits before" in (status.cause or "")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"finished": True}, RunState.SUCCEEDED),
        ({"script_code": 75}, RunState.INTERRUPTED),
        ({"stop_asked": True}, RunState.INTERRUPTED),
        ({"script_code": 65, "cause": "n1: bad data"}, RunState.FAILED),
        ({}, RunState.FAILED),
    ],
)
def test_a_purged_job_is_judged_by_the_files_in_its_folder(seen: dict[str, Any], expected: RunState) -> None:
    assert judge(SlurmSnapshot(job=None, address="slurm://7", **seen)).state is expected


def test_a_folder_that_nodes_cannot_write_is_reported() -> None:
    job = Job(id=7, state="FAILED", reason="JobLaunchFailure", exit_code=15, signal=53)
    assert "file system that they share" in (judge(SlurmSnapshot(job=job)).cause or "")


SRUN = """#!/bin/bash
place=0
for note in $(cat "$0.step$CLOUDREC_STEP"); do echo "$note" >"$CLOUDREC_ENDS/$((place++))"; done
exit "$(cat "$0.code$CLOUDREC_STEP")"
"""


@pytest.mark.parametrize(
    ("notes", "code", "fewest", "expected"),
    [
        ("75 75 75 75", 0, 2, "requeued"),
        ("75 75 begun 75", 137, 2, "requeued"),  # an agent was killed hours before the time limit
        ("75 75 70 75", 70, 2, "requeued"),  # one bad node, and the others trained to the time limit
        ("75 75 69 75", 69, 2, "requeued"),
        ("0 0 70 0", 70, 2, "0"),  # or to the end of the run
        ("0 0 begun 0", 137, 2, "0"),
        ("70 70 begun 70", 70, 2, "70"),
        ("65 75 75 75", 65, 2, "65"),
        # With all nodes, srun ends the others after a crash: they write that they were asked to end.
        ("75 75 begun 75", 137, 4, "1 more step"),
        ("75 75 70 75", 70, 4, "70"),
    ],
)
def test_what_the_agents_have_left_decides_how_the_job_ends(
    tmp_path: Path, notes: str, code: int, fewest: int, expected: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", f"#!/bin/bash\necho $* >>{tools}/asked\nexit 1\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for step, (left, ended) in enumerate([(notes, code), ("0 0 0 0", 0)], 1):
        (tools / f"srun.step{step}").write_text(left)
        (tools / f"srun.code{step}").write_text(str(ended))
    spec = RunSpec(name="run", launcher="slurm", nodes=4, min_nodes=fewest)
    made = job_script(spec, SlurmSettings.of({}), root=str(tmp_path), launch=2, gpus=0)
    (tmp_path / "job.sh").write_text(made.text())
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], env=environment, capture_output=True, text=True, check=False
    )
    if (tools / "asked").exists():
        found = "requeued"
    else:
        found = "1 more step" if "all are started again" in done.stderr else str(done.returncode)
    assert found == expected, done.stderr
