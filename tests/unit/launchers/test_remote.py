"""The shared code of launchers of remote runs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec.errors import UsageError
from cloudrec.launchers.base import launches, observer, record
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path / "runs", RunSpec(name="r", launcher="ray", storage=str(tmp_path / "store")))


class Counting(observer.RunObserver):
    asked = 0

    def _now(self) -> RunStatus:
        self.asked += 1
        return RunStatus(state=RunState.RUNNING)


def test_status_polls_the_engine_at_most_once_per_second(run: RunFolder) -> None:
    watching = Counting(run, run.spec())
    assert [watching.status() for _ in range(5)] == [RunStatus(state=RunState.RUNNING)] * 5
    assert watching.asked == 1


class Slow(Counting):
    def _now(self) -> RunStatus:
        time.sleep(0.1)
        return super()._now()


def test_threads_that_ask_at_the_same_time_share_one_look(run: RunFolder) -> None:
    watching = Slow(run, run.spec())
    with ThreadPoolExecutor(max_workers=3) as pool:
        asked = [pool.submit(watching.status) for _ in range(3)]
    assert {each.result().state for each in asked} == {RunState.RUNNING}
    assert watching.asked == 1


def test_an_engine_problem_is_reported_only_while_the_run_is_active() -> None:
    going, over = RunStatus(state=RunState.RUNNING, cause="a"), RunStatus(state=RunState.FAILED, cause="a")
    assert observer.with_problem(going, "b").cause == "a; b"
    assert observer.with_problem(going, "") is going
    assert observer.with_problem(over, "b") is over


def test_an_interrupted_launch_is_resumed_and_an_ended_launch_gets_a_successor(run: RunFolder) -> None:
    assert launches.next_launch(run) == 1
    run.ledger.append("submitted", launch=1)
    assert launches.next_launch(run) == 1
    run.ledger.append("started", launch=1)
    assert launches.next_launch(run) == 2
    run.ledger.append("succeeded", launch=1)
    with pytest.raises(UsageError, match="has finished"):
        launches.next_launch(run)


def test_a_recorded_end_is_reported_with_all_earlier_events(run: RunFolder) -> None:
    run.ledger.append("restarting", launch=1, attempt=1)
    run.ledger.append(record.PREEMPTED, launch=1, uid="u")
    assert record.final_status(run.ledger.read(), 1) is None
    run.ledger.append("failed", launch=1, cause="it broke")
    ended = RunStatus(state=RunState.FAILED, cause="it broke", attempt=1, preemptions=1)
    assert record.final_status(run.ledger.read(), 1) == ended
    assert record.final_status(run.ledger.read(), 2) is None


def test_a_running_run_is_not_launched_and_an_ended_run_is_not_stopped(run: RunFolder) -> None:
    going, over = RunStatus(state=RunState.RUNNING), RunStatus(state=RunState.INTERRUPTED)
    launches.refuse_alive(run, over)
    launches.refuse_over(run, going)
    with pytest.raises(UsageError, match="the run 'r' is RUNNING"):
        launches.refuse_alive(run, going)
    with pytest.raises(UsageError, match="is not running: it is INTERRUPTED"):
        launches.refuse_over(run, over)
