"""Flags of `cloudrec train` that would have no effect, or that are the trainer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--ray-address", "http://head:8265"], "--launcher ray"),
        (["--ray-address", "http://head:8265", "--launcher", "slurm"], "--launcher ray"),
        (["--slurm-host", "me@login"], "--launcher slurm"),
        (["--partition", "gpu", "--launcher", "local"], "--launcher slurm"),
        (["--account", "team"], "--launcher slurm"),
        (["--time-limit", "1-12"], "--launcher slurm"),
    ],
)
def test_a_flag_of_another_launcher_is_refused(capsys: Capture, words: list[str], needed: str) -> None:
    assert run(["train", "--dry-run", *words]) == 2
    said = capsys.readouterr().err
    assert f"error: {words[0]} is only for {needed}" in said
    assert f"remedy: add {needed}, or leave {words[0]} out" in said


def test_the_launcher_of_the_file_is_the_one_that_counts(folder: Path, capsys: Capture) -> None:
    (folder / "cloudrec.yaml").write_text("train: {launcher: slurm}\ncluster: {provider: nowhere}")
    assert run(["train", "--dry-run", "--partition", "gpu"]) == 3
    assert "is only for" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--batch_size", "3"], ["train.py", "--lr", "3"]])
def test_a_flag_of_the_trainer_is_refused_with_its_place(capsys: Capture, words: list[str]) -> None:
    assert run(["train", *words]) == 2
    said = capsys.readouterr().err
    assert f"error: there is no option '{words[-2]}'" in said
    assert (
        f"remedy: flags of the trainer or of the script follow `--`: cloudrec train -- {words[-2]} VALUE"
    ) in said


def test_a_misspelt_flag_of_the_command_is_offered(capsys: Capture) -> None:
    assert run(["train", "--datset", "data"]) == 2
    assert "did you mean '--dataset'? flags of the trainer" in capsys.readouterr().err


def test_a_loader_as_a_prepared_dataset_is_refused_with_its_place(capsys: Capture) -> None:
    assert run(["up", "local", "--yes"]) == 0
    capsys.readouterr()
    assert run(["train", "--dry-run", "--dataset", "my_loader:make"]) == 2
    said = capsys.readouterr().err
    assert "there is no dataset at" in said
    assert "cloudrec train -- --dataset my_loader:make" in said
