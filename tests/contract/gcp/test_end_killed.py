"""Google Cloud ends a cluster whose `up` was killed at any call from the creation of its GPU nodes on.

An `up` that was killed while it made the workflow of an end that moves is continued, and removed completely.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance.support_clouds import Cloud, Site, stand_in
from tests.tallies import Tally

LATER = timedelta(days=60)
SOON = timedelta(days=4)  # of an end that moves: more than a slow `up` takes, at SPEED; an execution a minute
MINUTES = 5
FIRST = "CreateNodePool"  # of the GPU nodes, made with 0 nodes; the CPU nodes are created with the cluster
GROWS = "SetNodePoolSize"
SAMPLES, KILLS = 8, 100
SPEED = 1500.0  # of the stand-in's clock: `up` makes dozens of calls from the first one of GPU nodes on


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with stand_in("gcp") as running:
        yield running


def now(cloud: Cloud) -> datetime:
    return datetime.fromtimestamp(cloud.settings()["virtual_time"], UTC)


def gpus(cloud: Cloud) -> int:
    return len(
        [entry for entry in cloud.state() if entry.startswith("compute:instances:") and "-gpu-" in entry]
    )


class Begun:
    """A cluster without its GPU nodes: `up` was killed before it created them."""

    def __init__(self, cloud: Cloud, folder: Path, budget_usd: float | None) -> None:
        cloud.reset()
        cloud.control(enforce_iam=True, real_times=False)
        self.cloud = cloud
        self.folder = folder
        self.budget_usd = budget_usd
        self.end = now(cloud) + (LATER if budget_usd is None else SOON)
        self.site = self.at(folder / "begun")
        code = self.site.run("up", action=FIRST, when="before")
        assert code == -signal.SIGKILL
        cloud.control(kill=None)
        cloud.save("begun")

    def at(self, folder: Path) -> Site:
        site = Site(self.cloud, folder)
        expires = f"{self.end:%Y-%m-%dT%H:%M:%SZ}"
        update = {"expires": expires, "budget_usd": self.budget_usd}
        site.cluster = site.cluster.model_copy(update=update)
        return site

    def again(self, number: int) -> Site:
        """The same cluster and the same home."""
        self.cloud.restore("begun")
        self.cloud.live(SPEED)
        folder = self.folder / str(number)
        shutil.copytree(self.folder / "begun", folder)
        return self.at(folder)

    def calls(self) -> int:
        """The number of calls of an undisturbed `up`, from the one that asks for GPU nodes on."""
        before = len(self.cloud.calls())
        assert self.again(0).run("up") == 0
        assert gpus(self.cloud) == 2
        actions = [call["action"] for call in self.cloud.calls(before)]
        return len(actions) - actions.index(GROWS)

    def killed(self, number: int, call: int, when: str) -> tuple[bool, int, int]:
        """Kill `up` at a call, and let the end pass: whether it died, and the GPU nodes before and after.

        Call 1 asks for the GPU nodes: the number of polls before it depends on the machine's speed.
        """
        code = self.again(number).run("up", call=call, when=when, since=GROWS)
        assert code in {0, -signal.SIGKILL}
        self.cloud.control(kill=None, speed=0.001)
        self.cloud.control(advance_s=1800.0)  # operations in progress end
        had = gpus(self.cloud)
        left = self.end + timedelta(minutes=MINUTES) - now(self.cloud)
        assert left > timedelta(minutes=MINUTES)
        self.cloud.control(advance_s=left.total_seconds())
        return code != 0, had, gpus(self.cloud)


@pytest.mark.parametrize(
    ("most", "budget_usd"),
    [
        pytest.param(SAMPLES, None, id="sample", marks=pytest.mark.slow),
        pytest.param(KILLS, None, id="every", marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
        pytest.param(KILLS, 1e6, id="every-budget", marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
    ],
)
def test_no_gpu_node_is_left_five_minutes_after_the_end_of_a_killed_up(
    cloud: Cloud, tmp_path: Path, most: int, budget_usd: float | None, tally: Tally
) -> None:
    begun = Begun(cloud, tmp_path, budget_usd)
    last = begun.calls()
    deaths = [(call, when) for call in range(1, last + 1) for when in ("before", "after")]
    chosen = itertools.cycle(deaths[:: max(1, len(deaths) // most)])
    done: list[tuple[bool, int, int]] = []
    # Some polls are made by chance: `up` may end before the call at which it is to die.
    while sum(dead for dead, _, _ in done) < most and len(done) < 2 * most:
        done.append(begun.killed(len(done) + 1, *next(chosen)))
    ended = [after == 0 for _, _, after in done]
    died, had = sum(dead for dead, _, _ in done), sum(before > 0 for _, before, _ in done)
    tally(
        f"calls 1-{last} from {GROWS} on: {sum(ended)} of {len(ended)} without a GPU node {MINUTES} minutes"
        f" after the end; {died} killed, {had} had GPU nodes"
    )
    assert all(ended)
    assert died == most
    assert had > most // 2


@pytest.mark.slow
def test_the_workflow_of_a_killed_up_is_made_once_and_removed(cloud: Cloud, tmp_path: Path) -> None:
    cloud.reset()
    cloud.control(enforce_iam=True, real_times=True)
    cloud.late_lists()
    kept = ("cloudscheduler:jobs", "workflows:workflows")
    for number, (action, when) in enumerate(
        itertools.product(("workflows.create", "jobs.create"), ("before", "after"))
    ):
        site = Site(cloud, tmp_path / str(number))
        site.cluster = site.cluster.model_copy(update={"budget_usd": 1e6})
        assert site.run("up", action=rf"projects\.locations\.{action}", when=when) == -signal.SIGKILL
        cloud.control(kill=None)
        if number % 2:
            assert site.run("up") == 0
            kinds = cloud.kinds()
            assert [kinds[each] for each in kept] == [1, 1]
        site.lose_journal()
        assert site.run("down") == 0
        assert cloud.state() == []
