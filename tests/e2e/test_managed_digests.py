"""A run on a managed cluster that the keeper moves trains as an undisturbed one, bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_first_hour import SAME, Laptop, laptop, prepared
from tests.tallies import Tally

__all__ = ["laptop", "prepared"]
TYPE = "p4d.24xlarge"
PATIENCE_S = 900.0
UP = ("up", "aws", "--capacity", "spot", "--instance-types", TYPE, "--nodes", "2", "--yes")
# Some minutes of steps, and checkpoints on the way.
TRAINER = (
    "--",
    "--deterministic",
    "--batch_size",
    "32",
    "--num_epochs",
    "60",
    "--checkpoint_interval",
    "200",
)


def rows(laptop: Laptop, run: str) -> dict[str, Any]:
    done = laptop.run("status", run, "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["runs"]
    return dict(found)


def wait(laptop: Laptop, run: str, done: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    ends = time.monotonic() + PATIENCE_S
    while not done(found := rows(laptop, run)):
        assert time.monotonic() < ends, (what, found)
        assert found["state"] != "FAILED", found
        time.sleep(2)
    return found


def keeper(laptop: Laptop) -> dict[str, Any]:
    (cluster,) = json.loads(laptop.run("status", "aws", "-o", "json").stdout)["clusters"]
    return dict(cluster["keeper"])


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("laptop", ["aws"], indirect=True)
def test_a_moved_run_has_the_samples_and_the_model_of_an_undisturbed_one(
    laptop: Laptop, prepared: Path, tally: Tally
) -> None:
    (laptop.folder / "prepared").symlink_to(prepared / "prepared")
    assert laptop.run("doctor", "aws").returncode == 0  # starts the sandbox
    before = laptop.existing()
    for words in (UP, ("data", "push", "prepared")):
        done = laptop.run(*words)
        assert done.returncode == 0, done.stderr[-3000:]
    train = ("train", "--nodes", "2", "--nproc-per-node", "1", "--yes", "--detach", "--name")
    for run in ("calm", "moved"):
        done = laptop.run(*train, run, *TRAINER)
        assert done.returncode == 0, done.stderr[-3000:]
    wait(laptop, "calm", lambda row: row["state"] == "SUCCEEDED", "undisturbed")
    wait(laptop, "moved", lambda row: row["state"] == "RUNNING" and (row["step"] or 0) > 300, "steps")
    (pool,) = keeper(laptop)["complete"]
    zone = {"zone": f"us-east-1{pool.split('-')[3]}", "instance_type": TYPE, "capacity": "spot"}
    laptop.control().order(capacity_trace=[{**zone, "data": [0], "gap_seconds": 10**7}])
    row = wait(laptop, "moved", lambda row: row["state"] == "SUCCEEDED", "moved")
    tally(
        f"moved: {row['restarts']} restarts, {row.get('preemptions')} preemptions; {keeper(laptop)['events']}"
    )
    assert any(f"{pool}: the cloud takes nodes back" in event["text"] for event in keeper(laptop)["events"])
    calm, moved = laptop.summary("calm"), laptop.summary("moved")
    assert calm == moved
    assert {"samples_digest", "model_digest"} <= set(SAME)
    assert laptop.run("down", "aws", "--yes").returncode == 0
    assert laptop.existing() <= before
