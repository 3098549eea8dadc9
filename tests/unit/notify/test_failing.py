"""`status` names the channels whose newest notifications did not arrive."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudrec.app import AppContext
from cloudrec.app.notices.failing import failing
from cloudrec.cli.main import run
from cloudrec.home import Home
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.notify.channels import SendFailure
from cloudrec.notify.notice import Notification, UnusableChannel
from cloudrec.notify.outbox import Outbox
from cloudrec.observe.runs import list_runs

NOW = 1_800_000_000.0


def notice(key: str, at: float) -> Notification:
    return Notification(key=key, event="failed", at=at, text="Run a has failed.", run="a")


def outbox(*rows: tuple[float, str, str], channel: str = "webhook") -> Outbox:
    """What a sender has after attempts: (when, its refusal or empty, final or not)."""
    found = Outbox()
    for at, why, how in rows:
        found = found.adding([notice(f"failed:{at}", at)], [channel])
        delivery = found.waiting[-1]
        refusal = SendFailure(why=why, is_final=how == "final") if why else None
        found = found.tried(delivery, refusal, at)
    return found


def written(home: Path, name: str, found: Outbox) -> RunFolder:
    asked = {"webhook": {"url_env": "HOOK_URL"}}
    made = create_run(home / "runs", RunSpec(name=name, notify=asked))
    made.ledger.append("succeeded", launch=1)
    (made.path / "notify.json").write_text(found.to_json(), encoding="utf-8")
    return made


def shown(home: Path, now: float = NOW) -> list[tuple[str, float | None, int, str]]:
    application = AppContext(home=Home(root=home), environment={})
    application = replace(application, now=lambda: datetime.fromtimestamp(now, UTC))
    rows = failing(application, [], list_runs(home / "runs"))
    return [(row.channel, row.since, row.count, row.why) for row in rows]


def test_failures_count_from_the_first_after_the_last_delivery(tmp_path: Path) -> None:
    first = outbox((NOW - 900, "it answers 500", "final"), (NOW - 800, "", ""))
    written(tmp_path, "a", first)
    assert shown(tmp_path) == []
    written(tmp_path, "b", outbox((NOW - 700, "it answers 403", "final")))
    written(tmp_path, "c", outbox((NOW - 600, "it is silent", "later")))
    assert shown(tmp_path) == [("webhook", NOW - 700, 2, "it is silent")]
    written(tmp_path, "d", outbox((NOW - 500, "", "")))
    assert shown(tmp_path) == []


def test_failures_of_another_week_and_of_other_channels_are_apart(tmp_path: Path) -> None:
    written(tmp_path, "a", outbox((NOW - 8 * 86_400, "it answers 500", "final")))
    assert shown(tmp_path) == []
    written(tmp_path, "b", outbox((NOW - 60, "550 no such user", "final"), channel="email"))
    written(
        tmp_path,
        "c",
        replace(
            Outbox(), problems=(UnusableChannel(channel="slack", why="the variable SLACK_URL is not set"),)
        ),
    )
    assert sorted(shown(tmp_path)) == [
        ("email", NOW - 60, 1, "550 no such user"),
        ("slack", None, 0, "the variable SLACK_URL is not set"),
    ]


def test_status_prints_the_channel_since_when_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path))
    written(tmp_path, "a", outbox((time.time() - 60, "it answers 403", "final")))
    assert run(["status"]) == 0
    printed = capsys.readouterr().out
    assert "warning: this machine delivers no notifications by webhook since 20" in printed
    assert "it answers 403" in printed
    assert "`cloudrec notify test` sends a test" in printed
    assert run(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["undelivered"]
    assert (row["channel"], row["count"], row["sender"]) == ("webhook", 1, "this machine")
