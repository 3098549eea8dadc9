"""An agent in a pod: crashes, stops and lost pods, and the results that each keeps."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from cloudrec_contract.exit_codes import RESTARTS_SPENT
from tests.e2e.support_pods import PATIENCE_S, fake_run, lines_of, lose, wait_for


def test_a_lost_rendezvous_pod_is_replaced_by_another(tmp_path: Path) -> None:
    with fake_run(tmp_path, nodes=2, steps=300, step_s=0.02) as pods:
        first, second = pods.start(0), pods.start(1)
        results = tmp_path / "results"
        wait_for((results / "metrics.jsonl").exists, first, second)
        assert lose(first) == []  # no process survives its pod
        again = pods.start(0, "b")
        assert (again.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
        starts = [
            each for each in lines_of((results / "metrics.jsonl").read_bytes()) if each["kind"] == "start"
        ]
        assert [each["attempt"] for each in starts] == [0, 1]
        assert "[rank 0] === launch 1, attempt 0, rank 0 of 2, " in pods.output(0, "b").read_text()
        assert "looking for it again" in pods.output(1).read_text()
        log = (results / "pods/r-1-a/rank-1.log").read_text()
        assert [line for line in log.splitlines() if line.startswith("===")][1].startswith(
            "=== launch 1, attempt 1,"
        )
        # a late pod finds the run finished
        assert pods.start(1, "late").wait(PATIENCE_S) == 0


def test_a_run_continues_with_fewer_nodes_after_the_loss_of_the_first_pod(tmp_path: Path) -> None:
    with fake_run(tmp_path, nodes=2, min_nodes=1, steps=400, step_s=0.05) as pods:
        first, second = pods.start(0), pods.start(1)
        wait_for(lambda: _starts(tmp_path)[-1:] == [2] and "step 10" in _text(pods.output(1)), first, second)
        lose(first)
        wait_for(lambda: _starts(tmp_path)[-1:] == [1], second)
        assert second.wait(PATIENCE_S) == 0
    assert "this pod hosts the rendezvous from now on, after r-0-a" in _text(pods.output(1))
    summary = json.loads((tmp_path / "results/summary.json").read_text())
    assert (summary["status"], summary["step"]) == ("finished", 400)
    assert (tmp_path / "results/leaders/0001-complete.json").exists()


def test_a_killed_container_is_started_again_in_its_pod_until_its_restarts_are_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_IN_PLACE", "1")
    with fake_run(tmp_path, steps=10_000, step_s=0.02, checkpoint_interval=5) as pods:
        first = pods.start()
        wait_for(lambda: "step 12" in _text(pods.output()), first)
        assert lose(first) == []
        again = pods.start()  # with the files of the first one, as in a pod
        wait_for(lambda: "step 20" in _text(pods.output()), again)
        assert "its container was killed, 1 of 1 times, and starts again" in _text(pods.output())
        lines = [line for line in _text(pods.output()).splitlines() if "begins at step" in line]
        assert int(lines[0].rpartition(" ")[2]) >= 10
        lose(again)
        assert pods.start().wait(PATIENCE_S) == RESTARTS_SPENT
        assert "its container was killed 2 times" in pods.word().read_text()
    events = lines_of((tmp_path / "results/pods/r-0-a/events.jsonl").read_bytes())
    assert [each["event"] for each in events if each["event"] in ("started", "restarting", "failed")] == [
        "started",
        "started",
        "restarting",
        "failed",
    ]


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _starts(folder: Path) -> list[int]:
    """The number of ranks at each start, as the leader has uploaded it."""
    metrics = folder / "results/metrics.jsonl"
    lines = lines_of(metrics.read_bytes()) if metrics.exists() else []
    return [line["world_size"] for line in lines if line["kind"] == "start"]


def test_a_crash_is_restarted_and_a_fatal_error_ends_the_run_at_once(tmp_path: Path) -> None:
    crashes = [{"rank": 0, "attempt": number, "step": 3, "how": how} for number, how in enumerate((1, 65))]
    with fake_run(tmp_path, steps=200, crashes=crashes) as pods:
        assert pods.start().wait(PATIENCE_S) == 65
        assert pods.word().read_text() == "bad data: rank 0: asked to fail at step 3"
        events = lines_of((tmp_path / "results/pods/r-0-a/events.jsonl").read_bytes())
        assert [each["event"] for each in events] == [
            *("started", "rank_started", "rank_ended", "restarting", "rank_started", "running"),
            *("rank_ended", "stopping", "failed"),
        ]
        assert (events[-1]["exit_code"], events[3]["cause"]) == (
            65,
            "rank 0 ended with exit code 1: asked to fail at step 3",
        )


def test_a_stop_reaches_the_trainer_and_results_are_uploaded_within_the_grace_period(tmp_path: Path) -> None:
    with fake_run(tmp_path, steps=10**6, step_s=0.02, helper=True) as pods:
        process = pods.start()
        log = pods.work() / "run/logs/rank-0.log"
        wait_for(lambda: log.exists() and "step 5" in log.read_text(), process)
        helper = int(log.read_text().partition("helper ")[2].split()[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(pods.grace_s) == 75
        assert not psutil.pid_exists(helper)
        assert pods.word().read_text() == "stopped on request, and stopped by all its ranks"
        results = tmp_path / "results"
        assert json.loads((results / "summary.json").read_text())["status"] == "stopped"
        assert (results / "metrics.jsonl").read_bytes() == (pods.work() / "run/metrics.jsonl").read_bytes()
        assert (results / "pods/r-0-a/rank-0.log").read_bytes() == log.read_bytes()
