"""What the trainer writes of a run's time is what `cloudrec status` shows, in JSON and to people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudrec.launch.folder import create_run
from cloudrec.launch.runspec import RunSpec
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import command

PARTS = {
    *("productive_s", "lost_s", "checkpoint_s", "restart_s", "data_wait_s", "evaluation_s", "idle_s"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run, trained by the real trainer in the run's own folder."""
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
    environment = os.environ | {"CLOUDREC_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "cloudrec", "status", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout


def test_status_shows_the_parts_that_the_trainer_tells(home: Path) -> None:
    summary = json.loads((home / "runs" / "first" / "summary.json").read_text())
    (run,) = json.loads(_status(home, "first", "-o", "json"))["runs"]
    assert run["goodput_parts"] == summary["goodput_parts"]
    assert run["goodput"] == summary["goodput"]
    assert set(run["goodput_parts"]) == PARTS
    total_s = sum(run["goodput_parts"].values())
    assert run["goodput"] == pytest.approx(run["goodput_parts"]["productive_s"] / total_s, abs=0.001)
    assert run["goodput_parts"]["restart_s"] > 0  # torch takes its time to import
    assert run["goodput_parts"]["lost_s"] == 0


def test_people_see_the_share_and_what_took_the_time(home: Path) -> None:
    shown = _status(home, "first")
    (run,) = json.loads(_status(home, "first", "-o", "json"))["runs"]
    assert "GOODPUT" in shown
    assert f" {run['goodput']:.0%} " in shown
    assert "first: restart " in shown.splitlines()[-1]
    assert "first: " not in _status(home)  # of one run alone: a list has no room for it


def test_metrics_tell_of_it_while_the_run_goes_on(home: Path) -> None:
    text = (home / "runs" / "first" / "metrics.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    assert all(set(line["goodput_parts"]) == PARTS and 0 <= line["goodput"] <= 1 for line in lines)
    totals = [sum(line["goodput_parts"].values()) for line in lines]
    assert totals == sorted(totals)
