"""Which pod hosts the rendezvous of an elastic run: one at a time, and another one after a loss."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from cloudrec.agent.lease import leader
from cloudrec.agent.lease.host import LeaseTimes, RendezvousHost
from cloudrec.agent.settings import PodSettings
from cloudrec.errors import RunFailedError
from cloudrec.home import make_private
from cloudrec.launchers.base.results_store import Place, open_place

FIRST = "r-0.r"
PATIENCE_S = 60.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return open_place(f"file://{tmp_path}/results")


class Pods:
    """The pods of a run, by their index; each ends with the test."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.made: list[RendezvousHost] = []
        self.said: list[str] = []

    def pod(self, index: int, uid: str = "a", *, launch: int = 1, first_s: float = 1e9) -> RendezvousHost:
        made = RendezvousHost(
            self.place,
            launch=launch,
            pod=f"r-{index}-{uid}",
            endpoint=f"r-{index}.r:29400",
            first="r-0.r:29400",
            say=self.said.append,
            # Each look at the clock is a second, so that a machine that pauses ends no lease.
            times=LeaseTimes(renew_s=0.02, lease_s=100, first_s=first_s, pause_s=0.01),
            now=partial(next, count()),
        )
        self.made.append(made)
        return made

    def claims(self) -> list[str]:
        """The pods that have hosted, in their order."""
        names = sorted(self.place.sizes("rendezvous/"))
        return [json.loads(self.place.read(name) or b"{}")["pod"] for name in names]


@pytest.fixture
def pods(place: Place) -> Iterator[Pods]:
    found = Pods(place)
    yield found
    for each in found.made:
        each.release()


def _find(host: RendezvousHost) -> str:
    return host.find(is_stopped=lambda: False)


def _lose(host: RendezvousHost) -> None:
    """End a pod's renewals without a release, as when its machine is lost."""
    host._held = None


def _in_threads(*hosts: RendezvousHost) -> list[str]:
    """What pods find that look at the same time."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda host=each: found.append(_find(host))) for each in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return found


def test_the_first_pod_hosts_and_all_others_find_it(pods: Pods) -> None:
    found = _in_threads(*(pods.pod(index) for index in (3, 1, 0, 2)))
    assert found == ["r-0.r:29400"] * 4
    assert pods.claims() == ["r-0-a"]


def test_survivors_agree_on_one_of_them_after_the_loss_of_the_first_pod(pods: Pods) -> None:
    first, others = pods.pod(0), [pods.pod(index) for index in (1, 2, 3)]
    _in_threads(first, *others)
    _lose(first)
    found = _in_threads(*others)
    assert len(set(found)) == 1
    assert found[0] != "r-0.r:29400"
    assert len(pods.claims()) == 2
    assert pods.said == [f"this pod hosts the rendezvous from now on, after {pods.claims()[0]}"]


def test_the_replacement_of_the_first_pod_joins_the_survivors(pods: Pods) -> None:
    first, second = pods.pod(0), pods.pod(1)
    _find(first)
    _lose(first)
    assert _find(second) == "r-1.r:29400"
    assert _find(pods.pod(0, "b")) == "r-1.r:29400"


def test_a_pod_that_ends_lets_the_next_one_host_at_once(place: Place, pods: Pods) -> None:
    first = pods.pod(0)
    _find(first)
    first.release()
    patient = RendezvousHost(
        place,
        launch=1,
        pod="r-1-a",
        endpoint="r-1.r:29400",
        first="r-0.r:29400",
        say=pods.said.append,
        times=LeaseTimes(lease_s=1e9, pause_s=0.01),
    )
    pods.made.append(patient)
    assert _find(patient) == "r-1.r:29400"


def test_the_first_pod_continues_to_host_after_its_torchrun_has_ended(pods: Pods) -> None:
    first = pods.pod(0)
    assert [_find(first), _find(first)] == ["r-0.r:29400"] * 2
    assert _find(pods.pod(0, "b")) == "r-0.r:29400"  # its replacement has the same name in DNS
    assert pods.claims() == ["r-0-a", "r-0-b"]


def test_a_host_that_was_silent_learns_that_another_one_hosts(pods: Pods) -> None:
    first, second = pods.pod(0), pods.pod(1)
    _find(first)
    held, first._held = first._held, None  # a machine that pauses
    assert _find(second) == "r-1.r:29400"
    first._held = held
    assert first._superseded.wait(PATIENCE_S)
    assert first.is_superseded
    assert _find(first) == "r-1.r:29400"
    assert not first.is_superseded


def test_a_run_begins_without_a_first_pod_that_never_comes(pods: Pods) -> None:
    assert _find(pods.pod(2, first_s=0.0)) == "r-2.r:29400"


def test_a_stopped_pod_finds_no_host(pods: Pods) -> None:
    assert pods.pod(1).find(is_stopped=lambda: True) == ""


def test_each_launch_has_its_own_hosts_and_an_old_pod_ends(pods: Pods) -> None:
    _find(pods.pod(0))
    assert _find(pods.pod(0, "b", launch=2)) == "r-0.r:29400"
    with pytest.raises(RunFailedError, match="launch 2 of this run has begun, and this is launch 1"):
        _find(pods.pod(1))


def test_a_host_of_an_earlier_launch_is_superseded(pods: Pods) -> None:
    old = pods.pod(0)
    _find(old)
    _find(pods.pod(0, "b", launch=2))
    deadline = time.monotonic() + PATIENCE_S
    while not old.is_superseded and time.monotonic() < deadline:
        time.sleep(0.01)
    assert old.is_superseded


def test_pods_of_a_finished_run_end_after_its_leader_has_uploaded_its_files(
    tmp_path: Path, place: Place
) -> None:
    settings = {name: PodSettings(run="r", pod=name, work=tmp_path / name) for name in ("lead", "other")}
    for each in settings.values():
        make_private(each.folder.logs)
    leader.take(place, settings["lead"])
    order: list[str] = []

    def end(name: str) -> None:
        leader.end_together(place, settings[name], within_s=PATIENCE_S, is_stopped=lambda: False)
        order.append(name)

    other = threading.Thread(target=end, args=("other",))
    other.start()
    other.join(0.2)
    assert order == []
    end("lead")
    other.join(PATIENCE_S)
    assert order == ["lead", "other"]


def test_a_pod_that_is_stopped_does_not_wait_for_the_leader(tmp_path: Path, place: Place) -> None:
    lead, other = (PodSettings(run="r", pod=name, work=tmp_path / name) for name in ("lead", "other"))
    make_private(lead.folder.logs)
    leader.take(place, lead)
    leader.end_together(place, other, within_s=1e9, is_stopped=lambda: True)
