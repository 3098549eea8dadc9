"""The report of a bug: the trace is kept in a file that holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.cli.crash import keep_trace
from cloudrec_contract.secret_values import HIDDEN


def test_the_trace_and_the_message_of_a_bug_hold_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "c4n4ry/v4lue")
    try:
        raise KeyError("no answer with c4n4ry/v4lue from https://me:c4n4ry@proxy.example/")  # noqa: TRY301
    except KeyError as error:
        message, remedy, code = keep_trace(error)
    (file,) = (tmp_path / "home" / "crashes").iterdir()
    assert code == 1
    assert str(file) in remedy
    assert "c4n4ry" not in message
    assert "c4n4ry" not in file.read_text()
    assert file.read_text().count(HIDDEN) >= 2
