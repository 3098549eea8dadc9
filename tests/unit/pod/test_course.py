"""A driver of agents gives each lost or ended agent its successor, and ends the run only when it is over."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.errors import UsageError
from cloudrec.pod.course import LOST, Course, Launch

_DOCUMENT: dict[str, Any] = {
    "nodes": 3,
    "min_nodes": 2,
    "max_restarts": 1,
    "gpus": 8,
    "port": 29400,
    "agent": ["agent", "--", "torchrun"],
    "program": ["--no-python", "trainer"],
}


def _course() -> Course:
    course = Course(Launch.of(_DOCUMENT))
    for place in range(3):
        course.ready(place, f"10.0.0.{place}")
    return course


def test_all_meet_at_one_of_them_and_each_tells_its_own_address() -> None:
    course = _course()
    assert course.command(2) == [
        *("agent", "--", "torchrun", "--rdzv-endpoint", "10.0.0.0:29400", "--local-addr", "10.0.0.2"),
        *("--no-python", "trainer"),
    ]


def test_where_that_one_is_lost_they_meet_at_another_and_stay_there() -> None:
    course = _course()
    course.command(1)
    assert course.ended(0, LOST) is None
    assert course.command(1)[4] == "10.0.0.1:29400"
    course.ready(0, "10.0.0.9")
    assert course.command(0)[4] == "10.0.0.1:29400"


def test_an_agent_that_says_start_me_again_is_no_crash() -> None:
    course = _course()
    for _ in range(10):
        assert course.ended(0, 75) is None
    assert course.needs(0)
    assert course.crashes == 0


@pytest.mark.parametrize("code", [64, 65, 69])
def test_what_another_agent_would_end_with_likewise_ends_the_run(code: int) -> None:
    assert _course().ended(1, code) == code


def test_so_many_crashes_are_forgiven_and_no_more() -> None:
    course = _course()
    assert course.ended(0, 1) is None
    assert course.ended(1, 137) == 1


def test_once_an_agent_has_finished_none_is_started_and_the_others_are_waited_for() -> None:
    course = _course()
    assert not course.is_over(running=0)
    assert course.ended(0, 0) is None
    assert not course.needs(1)
    assert not course.is_over(running=1)
    assert course.is_over(running=0)


def test_a_launch_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="of another version"):
        Launch.of({**_DOCUMENT, "more": 1})


def test_agents_that_were_sent_to_meet_where_nobody_is_any_more_are_told() -> None:
    course = _course()
    for place in (0, 1):
        course.command(place)
    assert course.strays() == []
    course.ended(0, LOST)
    assert course.strays() == [1]
    assert "--rdzv-endpoint 10.0.0.1:29400" in " ".join(course.command(1))
    assert course.strays() == []
    course.ready(0, "10.0.0.9")
    assert "--rdzv-endpoint 10.0.0.1:29400" in " ".join(course.command(0)), "all meet at the same"
