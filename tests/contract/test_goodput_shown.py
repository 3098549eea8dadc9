"""`cloudrec status` shows the goodput that the trainer writes, as JSON and as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import command

PARTS = {
    *("productive_s", "lost_s", "checkpoint_s", "restart_s", "data_wait_s", "evaluation_s", "idle_s"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run of the real trainer."""
    home = tmp_path_factory.mktemp("home")
    write_dataset(home / "data", train_rows=500, test_rows=100, num_dense=3, num_sparse=3)
    (home / "runs").mkdir()
    run = create_run(home / "runs", RunSpec(name="first"))
    for event in ("submitted", "started"):
        run.ledger.append(event, launch=1)
    words = command(home / "data", run.path, checkpoint_interval=10)
    subprocess.run(words, check=True, capture_output=True, timeout=180)
    run.ledger.append("succeeded", launch=1)
    return home


def _status(home: Path, *words: str) -> str:
    environment = os.environ | {"CLOUDREC_HOME": str(home), "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "cloudrec", "status", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout


def test_status_shows_the_goodput_parts_that_the_trainer_reports(home: Path) -> None:
    summary = json.loads((home / "runs" / "first" / "summary.json").read_text())
    (run,) = json.loads(_status(home, "first", "-o", "json"))["runs"]
    assert run["goodput_parts"] == summary["goodput_parts"]
    assert run["goodput"] == summary["goodput"]
    assert set(run["goodput_parts"]) == PARTS
    total_s = sum(run["goodput_parts"].values())
    assert run["goodput"] == pytest.approx(run["goodput_parts"]["productive_s"] / total_s, abs=0.001)
    assert run["goodput_parts"]["restart_s"] > 0  # importing torch takes seconds
    assert run["goodput_parts"]["lost_s"] == 0


def test_status_as_text_shows_goodput_and_the_largest_losses(home: Path) -> None:
    shown = _status(home, "first")
    (run,) = json.loads(_status(home, "first", "-o", "json"))["runs"]
    assert "GOODPUT" in shown
    assert f" {run['goodput']:.0%} " in shown
    assert "first: restart " in shown.splitlines()[-1]
    assert "first: " not in _status(home)  # shown for a single run only


def test_metrics_report_goodput_during_the_run(home: Path) -> None:
    text = (home / "runs" / "first" / "metrics.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    assert all(set(line["goodput_parts"]) == PARTS and 0 <= line["goodput"] <= 1 for line in lines)
    totals = [sum(line["goodput_parts"].values()) for line in lines]
    assert totals == sorted(totals)
