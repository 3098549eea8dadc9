"""`cloudrec --sandbox COMMAND`: stand-ins that stay for several commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REAL = {"AWS_PROFILE": "work", "AWS_SESSION_TOKEN": "real", "AWS_CONFIG_FILE": "/home/me/.aws/config"}
PATIENCE_S = 120.0


class Laptop:
    """A user's machine: one CLOUDREC_HOME, and credentials of a real account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = {**os.environ, **REAL, "CLOUDREC_HOME": str(self.home)}

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "cloudrec", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def session(self, name: str = "aws") -> dict[str, Any] | None:
        file = self.home / "sandbox" / name / "session.json"
        found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return found

    def pids(self) -> set[str]:
        """The processes of this home's sandboxes, with their stand-ins."""
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode().split("\0")
                variables = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "cloudrec_sandbox" in command and str(self.home) in f"{command}{variables}":
                found.add(entry.name)
        return found


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path)
    yield made
    made.run("sandbox", "stop")
    until(lambda: not made.pids(), "no process is left")


def until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up, what
        time.sleep(0.1)


def test_commands_share_one_account_until_it_is_stopped(laptop: Laptop) -> None:
    made = laptop.run("--sandbox", "up", "aws", "--yes", "--set", "cluster.addons=none")
    assert made.returncode == 0, made.stderr
    assert "starting the stand-in 'aws'; `cloudrec sandbox stop` ends it" in made.stderr
    shown = json.loads(laptop.run("status", "--sandbox", "-o", "json").stdout)
    assert [(each["name"], each["state"]) for each in shown["clusters"]] == [("aws", "READY")]
    assert json.loads(laptop.run("status", "-o", "json").stdout)["clusters"] == []  # the real home
    down = laptop.run("down", "--sandbox", "aws", "--yes")
    assert "cluster 'aws' is removed; no resources remain" in down.stdout
    assert "starting" not in down.stderr
    stopped = laptop.run("sandbox", "stop", "aws")
    assert stopped.stdout == "sandbox 'aws' is stopped\n"
    assert laptop.pids() == set()
    assert laptop.run("sandbox", "stop").stdout == "no sandbox is running\n"


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_cost_of_a_cluster_is_metered_and_known_after_its_removal(laptop: Laptop, cloud: str) -> None:
    made = laptop.run("--sandbox", "up", cloud, "--yes")
    assert made.returncode == 0, made.stderr
    (before,) = json.loads(laptop.run("--sandbox", "cost", "-o", "json").stdout)["clusters"]
    assert before["problem"] is None
    assert before["usd"] > 0
    gpus = [row for row in before["rows"] if row["instance_type"] and row["pool"].startswith("gpu")]
    assert sum(row["node_s"] for row in gpus) > 0
    assert before["unpriced_pools"] == []
    (shown,) = json.loads(laptop.run("--sandbox", "status", "-o", "json").stdout)["clusters"]
    assert shown["spent_usd"] >= before["usd"]
    assert f"${shown['spent_usd']:.1f}"[:2] in laptop.run("--sandbox", "status").stdout
    assert laptop.run("--sandbox", "down", cloud, "--yes").returncode == 0
    (after,) = json.loads(laptop.run("--sandbox", "cost", cloud, "-o", "json").stdout)["clusters"]
    assert after["removed"]
    assert after["usd"] > before["usd"]
    table = laptop.run("--sandbox", "cost", "--by", "pool").stdout
    assert "NODE-HOURS" in table
    assert "(no nodes)" in table
    unknown = laptop.run("--sandbox", "cost", "other")
    assert unknown.returncode == 2
    assert "no cluster 'other' is known here" in unknown.stderr


def test_a_command_without_a_cloud_needs_exactly_one_sandbox(laptop: Laptop) -> None:
    refused = laptop.run("--sandbox", "status")
    assert refused.returncode == 2
    assert "no sandbox is running, and the command names no cloud" in refused.stderr
    assert "`cloudrec --sandbox up aws` starts one" in refused.stderr
    for cloud in ("aws", "gcp"):
        assert laptop.run("--sandbox", "doctor", cloud).returncode == 0
    several = laptop.run("--sandbox", "status")
    assert several.returncode == 2
    assert "2 sandboxes are running: aws, gcp" in several.stderr
    unknown = laptop.run("--sandbox", "train", "--provider", "moon")
    assert unknown.returncode == 2
    assert "there is no stand-in 'moon'" in unknown.stderr


def test_two_first_commands_at_once_start_one_sandbox(laptop: Laptop) -> None:
    words = laptop.words("--sandbox", "doctor", "aws")
    both = [
        subprocess.Popen(words, env=laptop.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    errors = [each.communicate(timeout=300)[1].decode() for each in both]
    assert [each.returncode for each in both] == [0, 0], errors
    assert sum("starting the stand-in" in each for each in errors) == 1


def test_a_killed_sandbox_takes_its_stand_ins_and_its_state_along(laptop: Laptop) -> None:
    laptop.run("--sandbox", "up", "aws", "--yes", "--set", "cluster.addons=none")
    session = laptop.session()
    assert session is not None
    os.kill(session["pid"], signal.SIGKILL)
    until(lambda: not laptop.pids(), "the stand-ins end with the sandbox")
    again = laptop.run("--sandbox", "doctor", "aws")
    assert "starting the stand-in 'aws'" in again.stderr
    assert json.loads(laptop.run("--sandbox", "status", "-o", "json").stdout)["clusters"] == []


def test_an_unused_sandbox_ends_by_itself(laptop: Laptop) -> None:
    laptop.environment["CLOUDREC_SANDBOX_IDLE_S"] = "2"
    assert laptop.run("--sandbox", "doctor", "aws").returncode == 0
    until(lambda: laptop.session() is None and not laptop.pids(), "the sandbox ends")
    assert not (laptop.home / "sandbox" / "aws").exists()
