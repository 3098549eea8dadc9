"""`make live SANDBOX=1`: the README's line on a stand-in; `down` follows whatever happens before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 1100.0
pytestmark = pytest.mark.timeout(1200)
# Azure's stand-in is the fastest.
GIVEN = {"PROVIDER": "azure", "SANDBOX": "1", "CONFIRM": "cloudrec-live", "TTL": "3h", "BUDGET": "5"}


class Live:
    """The program, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "report.json"
        home = {"CLOUDREC_HOME": str(folder / "home"), "REPORT": str(self.file), "PYTHONPATH": str(ROOT)}
        self.environment = {**os.environ, **GIVEN, **home}

    def start(self, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "scripts.live"],
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {"commands": []}
        return found

    def codes(self) -> dict[str, int]:
        """The exit code of each command that ended, by its verb; of several, the last one's."""
        found = {}
        for each in self.report()["commands"]:
            words = [word for word in each["command"].split() if word != "--sandbox"]
            found[" ".join(words[1:3]) if words[1] in ("data", "sandbox") else words[1]] = each["exit_code"]
        return found

    def removed(self) -> bool:
        """Whether the cluster was removed, and a search found nothing of it."""
        codes = self.codes()
        return (codes.get("down"), codes.get("leaks"), codes.get("sandbox stop")) == (0, 0, 0)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    yield made
    stop = [sys.executable, "-P", "-m", "cloudrec", "sandbox", "stop"]
    subprocess.run(stop, env=made.environment, check=False, capture_output=True)


def test_the_line_trains_in_the_sandbox_and_the_report_has_every_command(live: Live) -> None:
    process = live.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output[-3000:]
    assert "resources in a sandbox account, $" in output
    assert "at most $4.55 (a budget of $5 or 3h, whichever ends first)" in output
    verbs = ["data synth", "data prepare", "up", "data push", "train", "logs", "status", "down", "leaks"]
    codes = live.codes()
    assert [verb for verb in verbs if codes.get(verb) != 0] == []
    report = live.report()
    assert (report["result"], report["account"]) == ("succeeded", "sandbox")
    assert all(each["seconds"] > 0 and each["began"] for each in report["commands"])
    assert "--budget 5" in next(each["command"] for each in report["commands"] if " up " in each["command"])
    assert live.removed()


def test_a_failed_train_is_followed_by_down(live: Live) -> None:
    process = live.start(TRAIN_FLAGS="--no_such_flag 1")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output[-3000:]
    codes = live.codes()
    assert codes["up"] == 0
    assert codes["train"] != 0
    assert "logs" not in codes
    assert live.removed()
    assert live.report()["result"] == f"`cloudrec train --cluster` ended with {codes['train']}"


def test_an_interruption_of_a_run_is_followed_by_down(live: Live) -> None:
    process = live.start()
    give_up = time.monotonic() + PATIENCE_S
    while "logs" not in live.codes():
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output[-3000:]
    assert live.report()["result"] == "interrupted"
    assert live.codes()["train"] == 0
    assert "status" not in live.codes()
    assert live.removed()


def test_nothing_is_made_without_an_agreement(live: Live) -> None:
    process = live.start(CONFIRM="")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 6, output[-3000:]
    assert live.report()["result"] == "declined"
    assert set(live.codes()) == {"up", "sandbox stop"}
    assert "--dry-run" in live.report()["commands"][0]["command"]


def test_an_unknown_provider_is_refused(live: Live) -> None:
    process = live.start(PROVIDER="moon")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "it can be aws, azure, gcp" in output
