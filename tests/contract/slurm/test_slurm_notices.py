"""The end of a run on Slurm is notified by the machine that launched it, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.app import AppContext
from cloudrec.app.notices import awaiting
from cloudrec.home import Home, locked
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.slurm.launcher import LAUNCHER
from cloudrec.observe.runs import load_run
from tests.contract.slurm.support_slurm import new_run, running_slurm, wait_for
from tests.unit.notify.support_receivers import Hooks, hooks

PATIENCE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[dict[str, str]]:
    with running_slurm() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "CLOUDREC_NOTIFY_POLL_S": "0.3"}.items():
            patch.setenv(name, value)
        yield variables


def notified(home: Path, name: str, **asked: object) -> RunFolder:
    run = new_run(home, name, **asked)
    run.write_spec(replace(run.spec(), notify={"webhook": "ML_HOOK"}))
    return run


def received(server: Hooks, count: int) -> list[tuple[str, str]]:
    deadline = time.monotonic() + PATIENCE_S
    while len(server.got) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    return [(each["event"], each["run"]) for each in server.got]


def ended(run: RunFolder) -> None:
    """Wait until no process waits for the run's end."""
    with locked(run.path / "awaiting.lock", what="the end", wait_s=PATIENCE_S):
        return


def test_the_end_is_sent_by_a_process_that_outlives_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooks() as server:
        monkeypatch.setenv("ML_HOOK", server.url)
        good = notified(tmp_path, "good", steps=2)
        bad = notified(tmp_path, "bad", crashes=[{"rank": 0, "attempt": 0, "step": 1, "how": 64}])
        for run in (good, bad):
            LAUNCHER.submit(run)
            awaiting.await_end(run, run.spec())
            awaiting.await_end(run, run.spec())  # a second one leaves it to the first
        assert sorted(received(server, 2)) == [("failed", "bad"), ("finished", "good")]
        for run in (good, bad):
            ended(run)
        (failed,) = [each for each in server.got if each["event"] == "failed"]
        assert "asked to fail at step 1" in failed["text"]
        assert len(server.got) == 2
        # The URL is in no file of the run: neither Slurm nor its nodes got it.
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or server.url.encode() not in path.read_bytes(), path


def test_status_sends_the_end_of_a_run_that_no_process_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    run = notified(tmp_path, "alone", steps=2)
    LAUNCHER.submit(run)
    wait_for(run, RunState.SUCCEEDED)
    view = load_run(tmp_path / "runs", "alone")
    application = AppContext(home=Home(root=tmp_path), environment={}, report=said.append)
    awaiting.await_ends(application, [view])
    assert said == ["warning: the end of run alone is not sent: not set here: ML_HOOK"]
    with hooks() as server:
        monkeypatch.setenv("ML_HOOK", server.url)
        application = AppContext(home=Home(root=tmp_path), environment={"ML_HOOK": server.url})
        awaiting.await_ends(application, [view])
        assert received(server, 1) == [("finished", "alone")]
        ended(run)
        awaiting.await_ends(application, [view])  # it was sent
        assert not awaiting._is_due(run, run.spec(), view)
        assert len(server.got) == 1


def test_a_stopped_run_notifies_no_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks() as server:
        monkeypatch.setenv("ML_HOOK", server.url)
        run = notified(tmp_path, "stopped", steps=400, step_s=0.05)
        LAUNCHER.submit(run)
        awaiting.await_end(run, run.spec())
        wait_for(run, RunState.RUNNING)
        LAUNCHER.stop(run)
        ended(run)
        assert server.got == []
