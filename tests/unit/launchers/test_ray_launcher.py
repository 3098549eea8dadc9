"""The launcher `ray` without a cluster: settings, the submission, and the result of a job."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError, SpecError, UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.ray import checks, job
from cloudrec.launchers.ray.launcher import LAUNCHER
from cloudrec.launchers.ray.observer import RaySnapshot, judge, reason, workers_of
from cloudrec.launchers.ray.report import AgentReport, LaunchReport
from cloudrec.launchers.ray.settings import Head, RaySettings, named_head
from cloudrec.launchers.ray.stored_lines import StoredLines
from cloudrec.observe.runs import find_run

PIP = """Failed to set up runtime environment.
Could not create the actor because its associated runtime env failed to be created.
ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[9] failed with: pip install
ERROR: Could not find a version that satisfies the requirement nothing==1 (from versions: none)
ERROR: No matching distribution found for nothing==1
"""


def _spec(**settings: Any) -> RunSpec:
    return RunSpec(name="try", launcher="ray", nodes=2, storage="/shared", settings=settings)


@pytest.fixture
def other_version() -> Iterator[str]:
    """Yield the URL of a server that answers like the dashboard of another Ray version."""

    class Dashboard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers: dict[str, Any] = {
                "/api/version": {"ray_version": "2.44.1"},
                "/api/authentication_mode": {"authentication_mode": "token"},
                "/api/v0/cluster_metadata": {"data": {"rayVersion": "2.44.1", "pythonVersion": "3.10.4"}},
            }
            body = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adress": "x"}, "adress is not known"),
        ({"address": "ray://head:10001"}, "address of a Ray client"),
        ({"address": "ftp://head"}, "not the address of a Ray dashboard"),
        ({"address": "http://head:port"}, "not the address of a Ray dashboard"),
        ({"gpus_per_node": -1}, "gpus_per_node"),
        ({"working_dir": "/no/such/folder"}, "there is no folder"),
        ({"requirements": "/no/such/file.txt"}, "cannot read"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        LAUNCHER.preflight(_spec(**settings))


def test_an_address_can_omit_scheme_and_port() -> None:
    head = named_head(_spec(address="head.example"))
    assert head == Head(url="http://head.example:8265")
    assert not head.is_here
    assert Head(url="http://127.0.0.1:8265").is_here


def test_a_cluster_with_another_ray_version_is_refused_with_both_versions(other_version: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(PreflightError, match=r"runs Ray 2\.44\.1; here is 2\.") as refused:
        checks.check_head(Head(url=other_version))
    assert "pip install 'ray[default]==2.44.1'" in str(refused.value.remedy)


def test_an_unreachable_address_is_reported() -> None:
    pytest.importorskip("ray")
    with pytest.raises(PreflightError, match=r"no Ray dashboard answers at http://127\.0\.0\.1:1"):
        checks.check_head(Head(url="http://127.0.0.1:1"))


def test_results_of_remote_machines_need_an_object_store() -> None:
    far = Head(url="http://10.0.0.1:8265")
    with pytest.raises(PreflightError, match="may not see /shared"):
        checks.check_storage(_spec(), far)
    checks.check_storage(_spec(storage="s3://bucket/runs"), far)
    checks.check_storage(_spec(), Head(url="http://127.0.0.1:8265"))


def test_a_working_directory_over_the_limit_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "day.parquet").write_bytes(b"x" * 2_000_000)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "objects").write_bytes(b"x" * 2_000_000)
    (tmp_path / "own.py").write_text("pass")
    settings = RaySettings(working_dir=str(tmp_path), working_dir_limit_mb=1.0)
    with pytest.raises(PreflightError, match=r"2\.0 MB to send; the limit is 1 MB.*data \(2\.0 MB\)"):
        job.files_to_send(settings)
    left = RaySettings(working_dir=str(tmp_path), working_dir_limit_mb=1.0, excludes=["*.parquet"])
    assert job.files_to_send(left) == [tmp_path / "own.py"]


def test_the_submission_contains_the_launch_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("pass")
    spec = RunSpec(
        name="try",
        nodes=2,
        nproc_per_node=4,
        storage="/shared",
        environment={"A_TOKEN": "secret"},
        settings={"working_dir": str(tmp_path), "requirements": ["polars==1.20"]},
    )
    with job.staged(spec, launch=1, gpus=4) as folder:
        assert (Path(folder) / "own.py").exists()
        launch = json.loads((Path(folder) / ".cloudrec" / "launch.json").read_text())
        shown = job.runtime_env(spec, folder)
    assert (launch["nodes"], launch["gpus"], launch["cpus"]) == (2, 4, 4.0)
    assert launch["environment"]["CLOUDREC_RESULTS"] == "/shared/runs/try"
    assert "secret" not in json.dumps(shown)
    assert shown["pip"] == ["polars==1.20"]


@pytest.mark.parametrize(
    ("status", "code", "report", "finished", "expected"),
    [
        ("PENDING", None, {}, False, (RunState.PENDING, "queued")),
        ("RUNNING", None, {}, False, (RunState.PENDING, "its driver is starting")),
        ("RUNNING", None, {"state": "RESTARTING", "cause": "lost"}, False, (RunState.RESTARTING, "lost")),
        ("SUCCEEDED", 0, {"code": 0}, True, (RunState.SUCCEEDED, None)),
        ("STOPPED", None, {}, False, (RunState.INTERRUPTED, "stopped on request")),
        ("FAILED", 75, {"code": 75, "cause": "gone"}, False, (RunState.INTERRUPTED, "gone")),
        ("FAILED", 64, {"code": 64, "cause": "bad flag"}, False, (RunState.FAILED, "bad flag")),
    ],
)
def test_the_state_combines_the_job_status_and_the_driver_report(
    status: str,
    code: int | None,
    report: dict[str, Any],
    finished: bool,  # noqa: FBT001 - a parameter of the test
    expected: tuple[RunState, str | None],
) -> None:
    read = LaunchReport.decode(json.dumps(report).encode())
    snapshot = RaySnapshot(status=status, message="queued", exit_code=code, report=read)
    found = judge(snapshot, finished=finished)
    assert (found.state, found.cause) == expected


def test_a_succeeded_job_without_a_finished_summary_has_failed() -> None:
    snapshot = RaySnapshot(status="SUCCEEDED", message="", exit_code=0, report=None)
    assert judge(snapshot, finished=False).state is RunState.FAILED


def test_the_report_of_the_driver_is_read_as_it_was_written() -> None:
    agents = {0: AgentReport(node="10.0.0.1", state="at work"), 10: AgentReport(cause="lost", restarts=2)}
    report = LaunchReport(launch=3, state=RunState.RESTARTING, cause="lost", places=agents, code=75)
    assert LaunchReport.decode(report.encode()) == report
    assert [worker.name for worker in workers_of(report)] == ["agent 0", "agent 10"]


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"launch": ', b"[1]", b'{"state": "NEW"}'])
def test_a_missing_or_damaged_report_counts_as_none(content: bytes | None) -> None:
    assert LaunchReport.decode(content) is None


def test_the_error_of_pip_is_extracted_from_the_message_of_ray() -> None:
    assert reason(PIP) == (
        "its requirements do not install: ERROR: Could not find a version that satisfies the requirement "
        "nothing==1 (from versions: none) ERROR: No matching distribution found for nothing==1"
    )
    assert reason("") == "its driver failed: `ray job logs` shows more"


def test_lines_of_a_rescheduled_rank_are_in_the_order_of_its_attempts(tmp_path: Path) -> None:
    def attempt(number: int, second: int) -> str:
        when = f"2026-01-01T00:00:{second:02}+00:00"
        return f"=== launch 1, attempt {number}, rank 0 of 2, {when} ===\nline {second}\n"

    pods = tmp_path / "runs" / "try" / "pods"
    for pod, text in (("b", attempt(0, 1) + attempt(1, 30)), ("a", attempt(0, 10))):
        (pods / pod).mkdir(parents=True)
        (pods / pod / "rank-0.log").write_text(text)
    spec = RunSpec(name="try", storage=str(tmp_path))
    reader = StoredLines(spec, rank=0, is_over=lambda: True)
    told = list(reader.lines(follow=False, tail=None))
    assert [line for line in told if line.startswith("line")] == ["line 1", "line 10", "line 30"]
    assert list(StoredLines(spec, rank=0, is_over=lambda: True).lines(follow=False, tail=1)) == ["line 30"]


def test_a_run_is_found_by_its_job_id_and_an_unknown_id_is_reported(tmp_path: Path) -> None:
    run = create_run(tmp_path, _spec())
    run.ledger.append("started", launch=1, id="ray://head:8265/one")
    assert find_run(tmp_path, "ray://head:8265/one") == run
    with pytest.raises(UsageError, match="has the id 'ray://head:8265/two'") as refused:
        find_run(tmp_path, "ray://head:8265/two")
    assert "ray://head:8265/one" in str(refused.value.remedy)
