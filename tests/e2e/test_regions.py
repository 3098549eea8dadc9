"""A run moves to the cluster of another region, and trains as an undisturbed one, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_first_hour import SAME, Laptop, laptop, prepared
from tests.e2e.test_managed_digests import rows, wait
from tests.tallies import Tally

__all__ = ["laptop", "prepared"]
TYPE = "p4d.24xlarge"
UP = ("up", "aws", "--capacity", "spot", "--instance-types", TYPE, "--nodes", "2", "--yes")
EAST = ("--cluster", "east", "--region", "us-east-1")
WEST = ("--cluster", "west", "--region", "us-west-2", "--storage-of", "east")
TRAIN = ("train", "--nodes", "2", "--nproc-per-node", "1", "--yes", "--detach", "--regions")
# Some minutes of steps, and checkpoints on the way.
TRAINER = (
    "--",
    "--deterministic",
    "--batch_size",
    "32",
    "--num_epochs",
    "24",
    "--checkpoint_interval",
    "200",
)


def queue(laptop: Laptop) -> list[dict[str, Any]]:
    done = laptop.run("queue", "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["queue"])


def succeeded(row: dict[str, Any]) -> bool:
    return bool(row["state"] == "SUCCEEDED")


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("laptop", ["aws"], indirect=True)
def test_a_run_without_capacity_in_its_region_continues_in_another(
    laptop: Laptop, prepared: Path, tally: Tally
) -> None:
    (laptop.folder / "prepared").symlink_to(prepared / "prepared")
    assert laptop.run("doctor", "aws").returncode == 0  # starts the sandbox
    before = laptop.existing()
    for words in ((*UP, *EAST), (*UP, *WEST), ("data", "push", "prepared", "--cluster", "east")):
        done = laptop.run(*words)
        assert done.returncode == 0, done.stderr[-3000:]
    for name, regions in (("calm", "us-east-1"), ("moved", "us-east-1,us-west-2")):
        done = laptop.run(*TRAIN, regions, "--cluster", "east", "--name", name, *TRAINER)
        assert done.returncode == 0, done.stderr[-3000:]
        if name == "calm":
            wait(laptop, name, succeeded, "undisturbed")
    wait(laptop, "moved", lambda row: row["state"] == "RUNNING" and (row["step"] or 0) > 300, "steps")
    assert rows(laptop, "moved")["cluster"] == "east"
    assert ("west", "in cluster east") in {(each["cluster"], each["state"]) for each in queue(laptop)}
    none = {"instance_type": TYPE, "capacity": "spot", "data": [0], "gap_seconds": 10**7}
    gone = [{**none, "zone": f"us-east-1{zone}"} for zone in "abcdf"]
    laptop.control().order(capacity_trace=gone)
    row = wait(laptop, "moved", succeeded, "moved")
    tally(f"{row['restarts']} restarts, {row['preemptions']} preemptions, {row['cost_usd']} USD")
    assert row["cluster"] == "west"
    calm, moved = laptop.summary("calm"), laptop.summary("moved")
    assert {key: moved[key] for key in SAME} == {key: calm[key] for key in SAME}
    assert [each for each in queue(laptop) if each["run"] == "moved"] == []
    for name in ("west", "east"):
        done = laptop.run("down", "aws", "--cluster", name, "--yes")
        assert done.returncode == 0, done.stderr[-3000:]
    assert laptop.existing() == before
