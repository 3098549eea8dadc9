"""The wait for installed add-ons, with a clock that may be suspended."""

from __future__ import annotations

from typing import Any

from cloudrec.engine.clock import Clock
from cloudrec.kubernetes.addons.inventory import ObjectReference
from cloudrec.kubernetes.addons.readiness import waiting
from cloudrec.kubernetes.client.client import Kube

PLUGIN = ObjectReference(version="apps/v1", kind="Deployment", namespace="default", name="plugin")


class Slept(Clock):
    """A clock that tests advance."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = 0.0

    def now(self) -> float:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += seconds


class Answers(Kube):
    """An API server whose first response takes an hour, and whose Deployment is ready after n responses."""

    def __init__(self, clock: Slept, ready_at: int) -> None:
        self.clock, self.ready_at, self.looks = clock, ready_at, 0

    def get(self, *_names: str, **_where: str) -> dict[str, Any]:
        self.looks += 1
        self.clock.moment += 3600.0 if self.looks == 1 else 0.0
        available = int(self.looks >= self.ready_at)
        return {"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": available}}


def test_after_a_suspend_past_the_timeout_the_state_is_checked_once_more() -> None:
    clock = Slept()
    assert waiting(Answers(clock, ready_at=2), [PLUGIN], clock, 60.0) == []


def test_an_addon_that_is_not_ready_after_the_timeout_is_reported() -> None:
    clock = Slept()
    (late,) = waiting(Answers(clock, ready_at=1000), [PLUGIN], clock, 60.0)
    assert (late.what, late.found) == ("Deployment plugin", "0 of 1 pods are available")
