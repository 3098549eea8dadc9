"""The progress of `up` and `down`: counted, timed, and estimated by what such steps took last."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.cli.work import Work
from cloudrec.engine.clock import Clock
from cloudrec.engine.durations import Durations
from cloudrec.engine.graph import Properties, Resource
from cloudrec.engine.plan import Action, Plan, PlanStep


class HandClock(Clock):
    """A clock that a test sets."""

    moment = 0.0

    def now(self) -> float:
        return self.moment


def action(kind: str, *needs: str, step: PlanStep = PlanStep.CREATE, candidates: int = 0) -> Action:
    choices = tuple(
        Resource[Properties](kind=kind, name=f"t-{number}", hourly_usd=1.0) for number in range(candidates)
    )
    resource = Resource[Properties](kind=kind, name="t", needs=needs, hourly_usd=0.0, candidates=choices)
    return Action(step=step, key=resource.key, reason="", hourly_usd=0.0, resource=resource)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def work(tmp_path: Path, clock: HandClock) -> Work:
    return Work(durations=Durations(tmp_path / "durations.json"), clock=clock)


PLAN = Plan(
    cluster="t",
    actions=[action("vpc"), action("nodes", "vpc/t", candidates=2), action("old", step=PlanStep.KEEP)],
    minutes=(14, 30),
)


def test_the_first_time_is_unknown_and_the_second_is_estimated(
    work: Work, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    work.begin("aws", PLAN)
    assert work.head == "cluster t: 0 of 2, 0s, time left unknown (14 to 30 minutes in all, as a rule)"
    work.step("vpc/t", "creating")
    clock.moment = 60.0
    work.step("vpc/t", "ready")
    work.step("nodes/t-1", "creating")  # a candidate counts as its choice
    assert work.rows() == [("nodes/t", "creating", "0s", "last time unknown")]
    clock.moment = 360.0
    work.step("nodes/t-1", "ready")
    assert work.head == "cluster t: 2 of 2, 0s"
    work.end()
    told = capsys.readouterr().err
    assert "vpc/t: creating (0s)\n" in told
    assert "nodes/t-1: ready (2 of 2, 0s)\n" in told
    assert told.endswith("2 of 2 steps in 0s\n")

    again = Work(durations=work.durations, clock=clock)
    again.begin("aws", PLAN)
    assert again.head == "cluster t: 0 of 2, 0s, about 6m00s left"
    again.step("vpc/t", "creating")
    clock.moment += 30.0
    assert again.rows() == [("vpc/t", "creating", "30s", "last time 1m00s")]
    assert again.head == "cluster t: 0 of 2, 0s, about 5m30s left"


def test_another_provider_and_a_removal_have_their_own_durations(work: Work, clock: HandClock) -> None:
    work.begin("aws", PLAN)
    work.step("vpc/t", "creating")
    clock.moment = 60.0
    work.step("vpc/t", "ready")
    work.end()
    assert work.durations.of("aws create vpc") == 60.0
    assert work.durations.of("gcp create vpc") is None
    assert work.durations.of("aws delete vpc") is None


def test_a_replacement_is_done_when_the_new_resource_is_ready(work: Work) -> None:
    work.begin("aws", Plan(cluster="t", actions=[action("vpc", step=PlanStep.REPLACE)]))
    for event, done in (("replacing: cidr", 0), ("deleting", 0), ("gone", 0), ("creating", 0), ("ready", 1)):
        work.step("vpc/t", event)
        assert work.done == done, event


def test_what_a_controller_made_meanwhile_is_counted_too(work: Work) -> None:
    removal = Action(step=PlanStep.DELETE, key="vpc/t", reason="", hourly_usd=0.0)
    work.begin("aws", Plan(cluster="t", actions=[removal]), {})
    work.step("load-balancer/x", "deleting")
    work.step("load-balancer/x", "gone")
    assert (work.done, work.total) == (1, 2)
