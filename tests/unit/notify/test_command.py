"""`cloudrec notify test` and `notify status` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.cli.main import run
from tests.unit.notify.support_receivers import hooks

SENT = ["notify", "test", "--set", "notify.webhook=HOOK"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))


def test_a_test_reaches_the_receiver_and_its_url_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hooks() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert run([*SENT, "-o", "json"]) == 0
        assert [each["event"] for each in server.got] == ["test"]
        printed = capsys.readouterr()
        (row,) = json.loads(printed.out)["notifications"]
        assert (row["channel"], row["state"]) == ("webhook", "sent")
        assert server.url not in printed.out + printed.err


def test_a_receiver_that_refuses_is_exit_code_1_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hooks(404) as server:
        monkeypatch.setenv("HOOK", server.url)
        assert run(SENT) == 1
    assert "404" in capsys.readouterr().out


def test_without_a_receiver_the_error_names_the_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["notify", "test"]) == 2
    assert "remedy: " in capsys.readouterr().err
    assert run(["notify", "status"]) == 0
    assert "no notifications" in capsys.readouterr().out
