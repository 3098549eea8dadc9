"""Text from elsewhere cannot drive the terminal, and cannot look like other output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.cli.main import run
from cloudrec.cli.plain import coloured, one_line, plain
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec

TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\twith a tab", "plain text\n\twith a tab"),
        (f"{TITLE}x", "\\x1b]0;owned\\x07x"),
        ("a\rb\x08c\x9bd", "a\\x0db\\x08c\\x9bd"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\ud800é🚀", "\\ud800é🚀"),
    ],
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_log_line_keeps_its_colours_alone() -> None:
    assert coloured("\x1b[31mred\x1b[0m\x1b[2J") == "\x1b[31mred\x1b[0m\\x1b[2J\x1b[0m"
    assert coloured("no colour") == "no colour"


def test_a_cause_with_line_breaks_is_one_line() -> None:
    assert one_line("a\n  RUN  STATE\r\nb") == "a RUN STATE b"
    assert one_line("two  spaces") == "two  spaces"


def test_status_of_a_run_whose_cause_has_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    folder = create_run(tmp_path / "home" / "runs", RunSpec(name="odd"))
    folder.ledger.append("failed", launch=1, cause=f"{TITLE}\nother  SUCCEEDED")
    assert run(["status"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "odd: \\x1b]0;owned\\x07 other SUCCEEDED" in shown
    assert run(["status", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert TITLE in document["runs"][0]["cause"]
    assert run(["status", f"x{TITLE}"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    run(["status", "-o", "table"])
