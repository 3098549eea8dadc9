"""Google Cloud ends a cluster whose `up` was killed at any call from the creation of its GPU nodes on."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance.support_clouds import Cloud, Site, stand_in

LATER = timedelta(days=60)
MINUTES = 5
FIRST = "CreateNodePool"  # the CPU nodes are created with the cluster
SAMPLES, KILLS = 8, 100
SPEED = 1500.0  # of the stand-in's clock: `up` makes dozens of calls from the first one of GPU nodes on


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with stand_in("gcp") as running:
        running.reset()
        running.control(enforce_iam=True, real_times=False)
        yield running


def now(cloud: Cloud) -> datetime:
    return datetime.fromtimestamp(cloud.settings()["virtual_time"], UTC)


def gpus(cloud: Cloud) -> int:
    return len(
        [entry for entry in cloud.state() if entry.startswith("compute:instances:") and "-gpu-" in entry]
    )


class Begun:
    """A cluster without its GPU nodes: `up` was killed before it created them."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self.folder = folder
        self.end = now(cloud) + LATER
        self.site = self.at(folder / "begun")
        code = self.site.run("up", action=FIRST, when="before")
        assert code == -signal.SIGKILL
        cloud.control(kill=None)
        cloud.save("begun")

    def at(self, folder: Path) -> Site:
        site = Site(self.cloud, folder)
        expires = f"{self.end:%Y-%m-%dT%H:%M:%SZ}"
        site.cluster = site.cluster.model_copy(update={"expires": expires})
        return site

    def again(self, number: int) -> Site:
        """The same cluster and the same home."""
        self.cloud.restore("begun")
        self.cloud.live(SPEED)
        folder = self.folder / str(number)
        shutil.copytree(self.folder / "begun", folder)
        return self.at(folder)

    def calls(self) -> tuple[int, int]:
        """The numbers of the first call of GPU nodes and of the last call of an undisturbed `up`."""
        before = len(self.cloud.calls())
        assert self.again(0).run("up") == 0
        assert gpus(self.cloud) == 2
        actions = [call["action"] for call in self.cloud.calls(before)]
        return actions.index(FIRST) + 1, len(actions)

    def killed(self, number: int, call: int, when: str) -> tuple[bool, int, int]:
        """Kill `up` at a call, and let the end pass: whether it died, and the GPU nodes before and after."""
        code = self.again(number).run("up", call=call, when=when)
        assert code in {0, -signal.SIGKILL}
        self.cloud.control(kill=None, speed=0.001)
        self.cloud.control(advance_s=1800.0)  # operations in progress end
        had = gpus(self.cloud)
        left = self.end + timedelta(minutes=MINUTES) - now(self.cloud)
        assert left > timedelta(minutes=MINUTES)
        self.cloud.control(advance_s=left.total_seconds())
        return code != 0, had, gpus(self.cloud)


@pytest.mark.parametrize(
    "most",
    [pytest.param(SAMPLES, id="sample"), pytest.param(KILLS, id="every", marks=pytest.mark.soak)],
)
def test_no_gpu_node_is_left_five_minutes_after_the_end_of_a_killed_up(
    cloud: Cloud, tmp_path: Path, most: int
) -> None:
    begun = Begun(cloud, tmp_path)
    first, last = begun.calls()
    deaths = [(call, when) for call in range(first, last + 1) for when in ("before", "after")]
    chosen = itertools.cycle(deaths[:: max(1, len(deaths) // most)])
    done: list[tuple[bool, int, int]] = []
    # Some polls are made by chance: `up` may end before the call at which it is to die.
    while sum(dead for dead, _, _ in done) < most and len(done) < 2 * most:
        done.append(begun.killed(len(done) + 1, *next(chosen)))
    ended = [after == 0 for _, _, after in done]
    died, had = sum(dead for dead, _, _ in done), sum(before > 0 for _, before, _ in done)
    print(
        f"calls {first}-{last}: {sum(ended)} of {len(ended)} without a GPU node {MINUTES} minutes after the"
        f" end; {died} killed, {had} had GPU nodes"
    )
    assert all(ended)
    assert died == most
    assert had
