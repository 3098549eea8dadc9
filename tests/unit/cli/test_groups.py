"""The commands that have commands: their lists and their answer to a wrong name."""

from __future__ import annotations

import pytest

from cloudrec.cli.main import run

Capture = pytest.CaptureFixture[str]
GROUPS = ("addons", "data", "image", "notify", "sandbox")


@pytest.mark.parametrize("group", GROUPS)
def test_the_list_of_commands_is_not_cut_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([group, "--help"]) == 0
    said = capsys.readouterr().out
    assert "..." not in said.partition("Commands:")[2]
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statu"], "there is no command 'statu'; did you mean 'status'?"),
        (["data", "sinth"], "there is no command 'sinth'; did you mean 'synth'?"),
        (["sandbox", "x"], "there is no command 'x'; known: run, stop"),
    ],
)
def test_a_wrong_command_is_refused_in_the_same_words(capsys: Capture, words: list[str], said: str) -> None:
    assert run(words) == 2
    assert f"error: {said}" in capsys.readouterr().err
