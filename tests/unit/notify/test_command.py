"""`cloudrec notify test` and `notify status` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.cli.main import run
from tests.unit.notify.support_receivers import hooks

GOOD = b"""{"known": [], "waiting": [], "problems": [], "facts": {}, "done": [
    {"at": 1.0, "key": "a", "event": "ended", "run": "good", "channel": "webhook", "tries": 1}
]}"""
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


def test_the_status_of_an_unknown_name_is_refused_as_status_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for words in (["notify", "status", "nosuch"], ["status", "nosuch"]):
        assert run(words) == 2
        found.append(capsys.readouterr().err)
    assert found[0] == found[1]
    (tmp_path / "home" / "runs" / "quiet").mkdir(parents=True)
    assert run(["notify", "status", "quiet"]) == 0
    assert "no notifications" in capsys.readouterr().out


@pytest.mark.parametrize("record", [b"\xff\xfe", b"{", b'{"known": 3}', b""])
def test_a_damaged_record_of_a_run_is_reported_and_hides_no_other(
    record: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in {"bad": record, "good": GOOD}.items():
        folder = tmp_path / "home" / "runs" / name
        folder.mkdir(parents=True, mode=0o700)
        (folder / "notify.json").write_bytes(data)
    (tmp_path / "home").chmod(0o700)
    assert run(["notify", "status", "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert [each["sender"] for each in json.loads(printed.out)["notifications"]] == ["run good"]
    assert "what run bad sent is not known" in printed.err
