"""A run moves to the cluster of another region, and trains as an undisturbed one, bit for bit."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_first_hour import SAME, Laptop, laptop, prepared
from tests.e2e.test_managed_digests import rows, wait
from tests.tallies import Tally

__all__ = ["laptop", "prepared"]
TRAIN = ("train", "--nodes", "2", "--nproc-per-node", "1", "--yes", "--detach", "--regions")


@dataclass(frozen=True, kw_only=True)
class Regions:
    """Two regions of a cloud, and a machine that both have."""

    machine: str
    first: str
    second: str
    zones: tuple[str, ...]  # of the first one


CLOUDS = {
    "aws": Regions(
        machine="p4d.24xlarge",
        first="us-east-1",
        second="us-west-2",
        zones=tuple(f"us-east-1{letter}" for letter in "abcdf"),
    ),
    "azure": Regions(
        machine="Standard_ND96asr_v4",
        first="eastus",
        second="southcentralus",
        zones=("eastus-1", "eastus-2"),
    ),
    "gcp": Regions(
        machine="a2-highgpu-8g",
        first="us-central1",
        second="europe-west4",
        zones=tuple(f"us-central1-{letter}" for letter in "abcf"),
    ),
}
SILENT: list[dict[str, Any]] = [{"kind": "drop", "times": 10**9}]
# Minutes of steps after the notice of two minutes, also on a fast machine, and checkpoints on the way.
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


def queue(laptop: Laptop) -> list[dict[str, Any]]:
    done = laptop.run("queue", "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["queue"])


def wait_until_no_queue_has(laptop: Laptop, run: str) -> None:
    """Wait for the keepers: each writes what it knows of a run once a round, the other's after its own."""
    ends = time.monotonic() + 300
    while left := [each for each in queue(laptop) if each["run"] == run]:
        assert time.monotonic() < ends, left
        time.sleep(5)


def wait_until_the_queue_has(laptop: Laptop, row: tuple[str, str]) -> None:
    """Wait for a cluster and a state: a keeper writes them once a round."""
    ends = time.monotonic() + 120
    while row not in (found := {(each["cluster"], each["state"]) for each in queue(laptop)}):
        assert time.monotonic() < ends, found
        time.sleep(2)


def two_clusters(laptop: Laptop, prepared: Path) -> set[str]:
    """Make a cluster in each region, of which the first has the data; return what existed before."""
    cloud = CLOUDS[laptop.cloud]
    up = ("up", laptop.cloud, "--capacity", "spot", "--instance-types", cloud.machine)
    (laptop.folder / "prepared").symlink_to(prepared / "prepared")
    assert laptop.run("doctor", laptop.cloud).returncode == 0  # starts the sandbox
    before = laptop.existing()
    for words in (
        (*up, "--nodes", "2", "--yes", "--cluster", "east", "--region", cloud.first),
        (*up, "--nodes", "2", "--yes", "--cluster", "west", "--region", cloud.second, "--storage-of", "east"),
        ("data", "push", "prepared", "--cluster", "east"),
    ):
        done = laptop.run(*words)
        assert done.returncode == 0, done.stderr[-3000:]
    return before


def undisturbed_and_moved(laptop: Laptop) -> None:
    """Train a run in the first region, and begin another one of both regions there."""
    cloud = CLOUDS[laptop.cloud]
    for name, regions in (("calm", cloud.first), ("moved", f"{cloud.first},{cloud.second}")):
        done = laptop.run(*TRAIN, regions, "--cluster", "east", "--name", name, *TRAINER)
        assert done.returncode == 0, done.stderr[-3000:]
        if name == "calm":
            wait(laptop, name, succeeded, "undisturbed")
    wait(laptop, "moved", lambda row: row["state"] == "RUNNING" and (row["step"] or 0) > 300, "steps")
    assert rows(laptop, "moved")["cluster"] == "east"
    wait_until_the_queue_has(laptop, ("west", "in cluster east"))


def take_the_nodes_of_the_first_region(laptop: Laptop, **how: Any) -> None:
    cloud = CLOUDS[laptop.cloud]
    none = {"instance_type": cloud.machine, "capacity": "spot", "data": [0], "gap_seconds": 10**7, **how}
    laptop.control().order(capacity_trace=[{**none, "zone": zone} for zone in cloud.zones])


def moved_as_undisturbed(laptop: Laptop) -> None:
    assert rows(laptop, "moved")["cluster"] == "west"
    calm, moved = laptop.summary("calm"), laptop.summary("moved")
    assert {key: moved[key] for key in SAME} == {key: calm[key] for key in SAME}


def remove(laptop: Laptop, before: set[str]) -> None:
    wait_until_no_queue_has(laptop, "moved")
    for name in ("west", "east"):
        done = laptop.run("down", laptop.cloud, "--cluster", name, "--yes")
        assert done.returncode == 0, done.stderr[-3000:]
    assert laptop.existing() <= before


def succeeded(row: dict[str, Any]) -> bool:
    return bool(row["state"] == "SUCCEEDED")


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("laptop", list(CLOUDS), indirect=True)
def test_a_run_without_capacity_in_its_region_continues_in_another(
    laptop: Laptop, prepared: Path, tally: Tally
) -> None:
    before = two_clusters(laptop, prepared)
    undisturbed_and_moved(laptop)
    take_the_nodes_of_the_first_region(laptop)
    row = wait(laptop, "moved", succeeded, "moved")
    tally(f"{row['restarts']} restarts, {row['preemptions']} preemptions, {row['cost_usd']} USD")
    moved_as_undisturbed(laptop)
    remove(laptop, before)


@pytest.mark.soak
@pytest.mark.timeout(4800)
@pytest.mark.parametrize("laptop", list(CLOUDS), indirect=True)
def test_a_run_whose_region_fails_continues_in_another_after_half_an_hour(
    laptop: Laptop, prepared: Path, tally: Tally
) -> None:
    before = two_clusters(laptop, prepared)
    undisturbed_and_moved(laptop)
    served = laptop.control().ask("GET")["kubernetes"]["clusters"]
    (east,) = (key for key in served if "east" in key.split("/")[-1])
    laptop.control().order(cluster_faults={east: SILENT})
    take_the_nodes_of_the_first_region(laptop, notice_s=0)
    failed = time.monotonic()
    # What a person sees meanwhile: no command fails or waits for long.
    for words in (("status",), ("status", "moved"), ("queue",), ("cost",), ("logs", "moved", "--tail", "1")):
        began = time.monotonic()
        done = laptop.run(*words)
        assert done.returncode == 0, (words, done.stderr)
        tally(f"{' '.join(words)}: {time.monotonic() - began:.1f} s\n{done.stdout}{done.stderr}")
    ends = failed + 45 * 60
    while rows(laptop, "moved")["cluster"] != "west":
        assert time.monotonic() < ends, rows(laptop, "moved")
        time.sleep(10)
    tally(f"taken after {(time.monotonic() - failed) / 60:.1f} minutes")
    row = wait(laptop, "moved", succeeded, "moved")
    tally(f"{row['restarts']} restarts, {row['preemptions']} preemptions, {row['cost_usd']} USD")
    moved_as_undisturbed(laptop)
    # The region works again: its keeper learns that the run has ended elsewhere.
    laptop.control().order(cluster_faults={east: []}, capacity_trace=[])
    remove(laptop, before)
