"""What launchers of runs elsewhere share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.errors import UsageError
from cloudrec.launch._remote import launches, observer, record
from cloudrec.launch.base import RunStatus
from cloudrec.launch.folder import RunFolder, create_run
from cloudrec.launch.ledger import RunState
from cloudrec.launch.runspec import RunSpec


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path / "runs", RunSpec(name="r", launcher="ray", storage=str(tmp_path / "store")))


class Counting(observer.Observer):
    asked = 0

    def _now(self) -> RunStatus:
        self.asked += 1
        return RunStatus(state=RunState.RUNNING)


def test_who_asks_all_the_time_asks_the_engine_once_a_second(run: RunFolder) -> None:
    watching = Counting(run, run.spec())
    assert [watching.status() for _ in range(5)] == [RunStatus(state=RunState.RUNNING)] * 5
    assert watching.asked == 1


def test_what_is_in_the_way_is_told_of_a_run_that_goes_on_and_not_of_an_end() -> None:
    going, over = RunStatus(state=RunState.RUNNING, cause="a"), RunStatus(state=RunState.FAILED, cause="a")
    assert observer.with_problem(going, "b").cause == "a; b"
    assert observer.with_problem(going, "") is going
    assert observer.with_problem(over, "b") is over


def test_a_launch_that_was_begun_is_gone_on_with_and_one_that_ended_is_followed(run: RunFolder) -> None:
    assert launches.next_launch(run) == 1
    run.ledger.append("submitted", launch=1)
    assert launches.next_launch(run) == 1
    run.ledger.append("started", launch=1)
    assert launches.next_launch(run) == 2
    run.ledger.append("succeeded", launch=1)
    with pytest.raises(UsageError, match="has finished"):
        launches.next_launch(run)


def test_an_end_that_is_written_down_is_told_with_all_that_came_before(run: RunFolder) -> None:
    run.ledger.append("restarting", launch=1, attempt=1)
    run.ledger.append(record.PREEMPTED, launch=1, uid="u")
    assert record.final_status(run.ledger.read(), 1) is None
    run.ledger.append("failed", launch=1, cause="it broke")
    ended = RunStatus(state=RunState.FAILED, cause="it broke", attempt=1, preemptions=1)
    assert record.final_status(run.ledger.read(), 1) == ended
    assert record.final_status(run.ledger.read(), 2) is None


def test_what_is_at_work_is_not_launched_and_what_has_ended_is_not_stopped(run: RunFolder) -> None:
    going, over = RunStatus(state=RunState.RUNNING), RunStatus(state=RunState.INTERRUPTED)
    launches.refuse_alive(run, over)
    launches.refuse_over(run, going)
    with pytest.raises(UsageError, match="the run 'r' is RUNNING"):
        launches.refuse_alive(run, going)
    with pytest.raises(UsageError, match="is not running: it is INTERRUPTED"):
        launches.refuse_over(run, over)
