"""An agent in a pod: crashes, stops and lost pods, and what is kept of each."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil

from tests.e2e.support_pods import PATIENCE_S, fake_run, lines_of, lose, wait_for


def test_the_pod_of_the_rendezvous_is_lost_and_the_others_find_the_next_one(tmp_path: Path) -> None:
    with fake_run(tmp_path, nodes=2, steps=300, step_s=0.02) as pods:
        first, second = pods.start(0), pods.start(1)
        results = tmp_path / "results"
        wait_for((results / "metrics.jsonl").exists, first, second)
        assert lose(first) == []  # nothing outlives a pod
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
        # a pod that comes late finds that nothing is left to do
        assert pods.start(1, "late").wait(PATIENCE_S) == 0


def test_a_crash_is_forgiven_and_what_another_pod_would_refuse_too_ends_at_once(tmp_path: Path) -> None:
    crashes = [{"rank": 0, "attempt": number, "step": 3, "how": how} for number, how in enumerate((1, 65))]
    with fake_run(tmp_path, steps=200, crashes=crashes) as pods:
        assert pods.start().wait(PATIENCE_S) == 65
        assert pods.word().read_text() == "bad data: rank 0: told to fail at step 3"
        events = lines_of((tmp_path / "results/pods/r-0-a/events.jsonl").read_bytes())
        assert [each["event"] for each in events] == [
            *("started", "rank_started", "rank_ended", "restarting", "rank_started", "running"),
            *("rank_ended", "stopping", "failed"),
        ]
        assert (events[-1]["exit_code"], events[3]["cause"]) == (
            65,
            "rank 0 ended with exit code 1: told to fail at step 3",
        )


def test_a_stop_reaches_the_trainer_and_all_is_kept_within_the_grace(tmp_path: Path) -> None:
    with fake_run(tmp_path, steps=10**6, step_s=0.02, helper=True) as pods:
        process = pods.start()
        log = pods.work() / "run/logs/rank-0.log"
        wait_for(lambda: log.exists() and "step 5" in log.read_text(), process)
        helper = int(log.read_text().partition("helper ")[2].split()[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(pods.grace_s) == 75
        assert not psutil.pid_exists(helper)
        assert pods.word().read_text() == "told to stop, and stopped by all its ranks"
        results = tmp_path / "results"
        assert json.loads((results / "summary.json").read_text())["status"] == "stopped"
        assert (results / "metrics.jsonl").read_bytes() == (pods.work() / "run/metrics.jsonl").read_bytes()
        assert (results / "pods/r-0-a/rank-0.log").read_bytes() == log.read_bytes()
