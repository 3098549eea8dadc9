"""No command accepts a run name that leads out of the folder of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.cli.main import run
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec

NAMES = [
    "../../foreign/evil",
    "../runs/first",
    "first/../first",
    "first/",
    "./first",
    "..",
    ".",
    "",
    ".draft",
    "..\\foreign\\evil",
    "first\0",
    "first\n",
    "x" * 300,
    "ABSOLUTE",
]
COMMANDS = [
    ("status",),
    ("status", "--events"),
    ("logs",),
    ("stop",),
    ("report",),
    ("fetch",),
    ("train", "--dry-run", "--resume"),
]


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a cluster and a run, and a run outside it whose program writes a file."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("CLOUDREC_HOME", str(home))
    assert run(["up", "local"]) == 0
    for name in ("first", "draft"):
        create_run(home / "runs", RunSpec(name=name))
    (home / "runs" / "draft").rename(home / "runs" / ".draft")
    spec = RunSpec(name="evil", trainer_command=("touch", str(tmp_path / "started")))
    return create_run(tmp_path / "foreign", spec).path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_invalid_run_name_is_refused(
    foreign: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], name: str
) -> None:
    before = sorted(foreign.parents[1].rglob("*"))
    capsys.readouterr()
    assert run([*command, str(foreign) if name == "ABSOLUTE" else name]) == 2
    assert "there is no" in capsys.readouterr().err
    assert sorted(foreign.parents[1].rglob("*")) == before


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_a_new_run_with_an_invalid_name_is_refused(
    foreign: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    before = sorted(foreign.parents[1].rglob("*"))
    assert run(["train", "--dataset", "none", "--name", str(foreign) if name == "ABSOLUTE" else name]) == 2
    assert "--name: train.name is" in capsys.readouterr().err
    assert sorted(foreign.parents[1].rglob("*")) == before
