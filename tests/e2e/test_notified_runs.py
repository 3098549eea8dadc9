"""Local runs with real processes: who is notified how they end, and what their metrics are meanwhile."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.local.launcher import LAUNCHER
from cloudrec.observe.status import wait_for_end
from tests.e2e.test_local_launcher import LONG, SECONDS, _spec, _wait_for_step, _wait_until, runs
from tests.unit.notify.support_receivers import free_port, hooks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["runs"]


def _launch(folder: Path, config: dict[str, Any], **changes: Any) -> RunFolder:
    run = create_run(folder, _spec(config, **changes))
    LAUNCHER.submit(run)
    return run


def _told(run: RunFolder) -> list[dict[str, Any]]:
    events = ("notified", "not_notified")
    return [{"event": each.event, **each.details} for each in run.ledger.read() if each.event in events]


def test_the_end_of_a_run_is_sent_once_and_noted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks(500, 200) as server:
        monkeypatch.setenv("HOOK", server.url)
        run = _launch(runs, {"steps": 2}, notify={"webhook": "HOOK"})
        assert wait_for_end(run, timeout_s=SECONDS).state is RunState.SUCCEEDED
        _wait_until(lambda: not run.is_alive, 10)  # the lock waits for no attempt: the second is in 15 s
        _wait_until(lambda: len(_told(run)) == 1)
    assert [got["event"] for got in server.got] == ["finished", "finished"]
    assert len({got["id"] for got in server.got}) == 1
    (told,) = _told(run)
    assert (told["event"], told["channel"], told["about"], told["tries"]) == (
        "notified",
        "webhook",
        "finished",
        2,
    )


def test_a_failure_is_sent_with_its_cause_and_a_deaf_receiver_is_noted(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooks(404) as server:
        monkeypatch.setenv("HOOK", server.url)
        config = {"steps": 5, "crashes": [{"rank": 0, "attempt": 0, "step": 2, "how": 64}]}
        run = _launch(runs, config, notify={"slack": "HOOK", "webhook": "ABSENT"})
        assert wait_for_end(run, timeout_s=SECONDS).state is RunState.FAILED
        _wait_until(lambda: len(_told(run)) == 2)
    assert "has failed" in server.got[0]["text"]
    assert [each["cause"] for each in _told(run)] == [
        "webhook: its secret 'ABSENT' is not set",
        "slack: it answered 404 Not Found",
    ]
    assert server.url not in run.ledger.path.read_text() + (run.path / "spec.json").read_text()


def test_a_run_that_its_user_stops_notifies_no_one(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks(200) as server:
        monkeypatch.setenv("HOOK", server.url)
        run = _launch(runs, LONG, notify={"webhook": "HOOK"})
        _wait_for_step(run, 1)
        LAUNCHER.stop(run, grace_s=20)
        _wait_until((run.path / "notify.json").exists)
    assert server.got == []


def test_metrics_are_served_on_loopback_while_the_run_lives_also_through_a_restart(runs: Path) -> None:
    port = free_port()
    config = {**LONG, "crashes": [{"rank": 1, "attempt": 0, "step": 3, "how": 1}]}
    run = _launch(runs, config, metrics_port=port, max_restarts=1)

    def page() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    _wait_until(lambda: 'cloudrec_run_restarts_total{cluster="local",run="try"} 1' in page())
    _wait_until(lambda: 'cloudrec_run_step{cluster="local",run="try"}' in page())
    LAUNCHER.stop(run, grace_s=20)
    _wait_until(lambda: not page())
