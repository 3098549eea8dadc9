"""The driver of agents: replacement of lost agents, and the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.agent.engines.supervision import LOST, AgentChange, AgentEvent, LaunchProgress, LaunchRequest
from cloudrec.errors import UsageError

_DOCUMENT: dict[str, Any] = {
    "nodes": 3,
    "min_nodes": 2,
    "max_restarts": 1,
    "gpus": 8,
    "port": 29400,
    "agent": ["agent", "--", "torchrun"],
    "program": ["--no-python", "trainer"],
}


def _course() -> LaunchProgress:
    course = LaunchProgress(LaunchRequest.of(_DOCUMENT))
    for place in range(3):
        course.ready(place, f"10.0.0.{place}")
    return course


def test_all_agents_use_one_rendezvous_and_each_announces_its_own_address() -> None:
    course = _course()
    assert course.command(2) == [
        *("agent", "--", "torchrun", "--rdzv-endpoint", "10.0.0.0:29400", "--local-addr", "10.0.0.2"),
        *("--no-python", "trainer"),
    ]


def test_a_lost_rendezvous_host_is_replaced_permanently() -> None:
    course = _course()
    course.command(1)
    assert course.ended(0, LOST) is None
    assert course.command(1)[4] == "10.0.0.1:29400"
    course.ready(0, "10.0.0.9")
    assert course.command(0)[4] == "10.0.0.1:29400"


def test_an_agent_that_requests_a_restart_is_not_a_crash() -> None:
    course = _course()
    for _ in range(10):
        assert course.ended(0, 75) is None
    assert course.needs(0)
    assert course.crashes == 0


@pytest.mark.parametrize("code", [64, 65, 69, 70, 71])
def test_a_failure_that_every_agent_would_repeat_ends_the_run(code: int) -> None:
    assert _course().ended(1, code) == code


def test_crashes_are_restarted_up_to_the_limit() -> None:
    course = _course()
    assert course.ended(0, 1) is None
    assert course.ended(1, 137) == 1


def test_after_an_agent_has_finished_none_is_started_and_the_others_are_awaited() -> None:
    course = _course()
    assert not course.is_over(running=0)
    assert course.ended(0, 0) is None
    assert not course.needs(1)
    assert not course.is_over(running=1)
    assert course.is_over(running=0)


def test_a_launch_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="of another version"):
        LaunchRequest.of({**_DOCUMENT, "more": 1})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (AgentEvent(change=AgentChange.PLACED, place=0, address="10.0.0.1"), "agent 0 is at 10.0.0.1"),
        (AgentEvent(change=AgentChange.ENDED, place=1, code=65), "agent 1 ended with 65"),
    ],
)
def test_an_event_is_a_line_of_the_log_of_the_driver(event: AgentEvent, line: str) -> None:
    assert str(event) == line


def test_agents_with_an_outdated_rendezvous_are_reported() -> None:
    course = _course()
    for place in (0, 1):
        course.command(place)
    assert course.outdated() == []
    course.ended(0, LOST)
    assert course.outdated() == [1]
    assert "--rdzv-endpoint 10.0.0.1:29400" in " ".join(course.command(1))
    assert course.outdated() == []
    course.ready(0, "10.0.0.9")
    assert "--rdzv-endpoint 10.0.0.1:29400" in " ".join(course.command(0)), "all meet at the same"
