"""The README's line, `up`, `data push`, `train`, `logs`, `down`, on each cloud's stand-in.

Each case runs the line twice: once as a user types it, and once with SIGKILL at a random call of each
command, which is then typed again. Both runs must finish with the digests of the same training on this
machine, and the account must be as it was.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cloudrec_sandbox.core.client import Control
from tests.tallies import Tally

TRAINER = ("--", "--batch_size", "64", "--deterministic", "--checkpoint_interval", "20")
SAME = ("samples_seen", "samples_digest", "model_digest", "auc")
ENDPOINTS = {
    "aws": "AWS_ENDPOINT_URL",
    "azure": "AZURE_RESOURCE_MANAGER_ENDPOINT_URL",
    "gcp": "GOOGLE_CLOUD_ENDPOINT_URL",
}
# The stand-in's address service answers with this address (RFC 5737).
ACCESS = {"auto": (), "one-address": ("--access", "203.0.113.7/32")}
WAIT_THEN_RUN = 'read -r _; exec "$@"'  # so that the kill is ordered before the command begins
PATIENCE_S = 900


class Laptop:
    """A user's machine and its sandbox of one cloud."""

    def __init__(self, folder: Path, cloud: str = "") -> None:
        self.folder = folder
        self.cloud = cloud
        self.options = ("--sandbox",) if cloud else ()
        self.environment = {**os.environ, "CLOUDREC_HOME": str(folder / "home")}

    def run(self, *words: str, kill: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command, which is killed at its `kill`-th call of the cloud (0: never)."""
        command = [sys.executable, "-P", "-m", "cloudrec", *self.options, *words]
        with subprocess.Popen(
            ["sh", "-c", WAIT_THEN_RUN, "sh", *command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if kill:
                self.control().order(kill={"pid": process.pid, "call": kill})
            try:
                output, errors = process.communicate("go\n", timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if kill:
            self.control().order(kill=None)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def control(self) -> Control:
        """Return the control of the running sandbox."""
        file = self.folder / "home" / "sandbox" / self.cloud / "session.json"
        found: dict[str, str] = json.loads(file.read_text())["variables"]
        authority = found.get("SSL_CERT_FILE")
        return Control(found[ENDPOINTS[self.cloud]], found["CLOUDREC_SANDBOX_TOKEN"], authority=authority)

    def existing(self) -> set[str]:
        """Return what exists in the account."""
        found: set[str] = set(self.control().ask("GET", "/state")["existing"])
        return found

    def summary(self, run: str) -> dict[str, Any]:
        """Return what a finished run reports."""
        done = self.run("status", run, "-o", "json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["runs"]
        assert found["state"] == "SUCCEEDED", found
        assert self.run("fetch", run).returncode == 0
        file = next(self.folder.glob(f"**/{run}/summary.json"))
        summary: dict[str, Any] = json.loads(file.read_text())
        return {name: summary[name] for name in SAME}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a dataset, and the figures of the same training on this machine."""
    folder = tmp_path_factory.mktemp("prepared")
    laptop = Laptop(folder)
    for words in (
        ("data", "synth", "raw", "--rows", "4000"),
        ("data", "prepare", "raw", "prepared"),
        ("up", "local", "--yes"),
        ("train", "--dataset", "prepared", "--nproc-per-node", "2", "--name", "first", "--yes", *TRAINER),
    ):
        done = laptop.run(*words)
        assert done.returncode == 0, done.stderr
    (folder / "figures.json").write_text(json.dumps(laptop.summary("first")))
    return folder


@pytest.fixture(params=list(ENDPOINTS))
def laptop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path, request.param)
    yield made
    subprocess.run(
        [sys.executable, "-P", "-m", "cloudrec", "sandbox", "stop"], env=made.environment, check=True
    )


@pytest.mark.soak
@pytest.mark.parametrize("access", list(ACCESS))
def test_the_line_trains_and_leaves_nothing_also_after_sigkill(
    laptop: Laptop, access: str, prepared: Path, tally: Tally
) -> None:
    (laptop.folder / "prepared").symlink_to(prepared / "prepared")
    figures = json.loads((prepared / "figures.json").read_text())
    assert laptop.run("doctor", laptop.cloud).returncode == 0  # starts the sandbox
    before = laptop.existing()
    calls = {}
    line = the_line(laptop.cloud, access, "first")
    for words in line:
        since = laptop.control().ask("GET")["calls"]
        done = laptop.run(*words)
        assert done.returncode == 0, (words, done.stderr[-3000:])
        calls[words[0]] = laptop.control().ask("GET")["calls"] - since
        if words[0] == "logs":
            assert laptop.summary("first") == figures
    assert laptop.existing() <= before
    chosen = random.Random(f"{laptop.cloud} {access}")  # noqa: S311 - no secret
    for words in the_line(laptop.cloud, access, "second"):
        number = chosen.randint(1, max(1, calls[words[0]]))
        killed = laptop.run(*words, kill=number)
        tally(f"{' '.join(words[:2])}: killed at call {number} of {calls[words[0]]}: {killed.returncode}")
        again = killed if killed.returncode == 0 else repeat(laptop, words)
        assert again.returncode == 0, (words, number, again.stderr[-3000:])
        if words[0] == "logs":
            assert laptop.summary("second") == figures
    assert laptop.existing() <= before


def the_line(cloud: str, access: str, run: str) -> list[tuple[str, ...]]:
    """Return the commands; the run's name is given so that the test finds it."""
    return [
        ("up", cloud, "--yes", *ACCESS[access]),
        ("data", "push", "prepared"),
        ("train", "--nodes", "2", "--nproc-per-node", "1", "--name", run, "--yes", "--detach", *TRAINER),
        ("logs", run, "--follow"),
        ("down", cloud, "--yes"),
    ]


def repeat(laptop: Laptop, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a command again that was killed. A run that was submitted before is not submitted twice."""
    done = laptop.run(*words)
    if words[0] == "train" and done.returncode == 2:
        with suppress(ValueError):
            known = json.loads(laptop.run("status", "second", "-o", "json").stdout)
            if known.get("runs"):
                return laptop.run("status", "second")
    return done
