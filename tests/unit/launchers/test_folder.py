"""A run's folder: atomic creation, and its complete checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cloudrec.errors import DataError, StorageError, UsageError
from cloudrec.launchers.base.outputs import checkpoint_folder, last_error
from cloudrec.launchers.base.run_folder import RunFolder, create_run, newest_checkpoint
from cloudrec.launchers.base.runspec import RunSpec

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_run_has_its_spec_and_no_temporary_files(tmp_path: Path) -> None:
    spec = RunSpec(name="one")
    run = create_run(tmp_path / "runs", spec)
    assert run.spec() == spec
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
    assert (run.path.stat().st_mode & 0o777) == 0o700
    assert not run.is_alive


def test_a_run_name_is_unique(tmp_path: Path) -> None:
    create_run(tmp_path, RunSpec(name="one"))
    with pytest.raises(UsageError, match="a run named 'one' exists already") as refused:
        create_run(tmp_path, RunSpec(name="one", nproc_per_node=2))
    assert "train --resume one" in (refused.value.remedy or "")
    assert RunFolder(path=tmp_path / "one").spec().nproc_per_node == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot write .*runs"):
        create_run(tmp_path / "runs", RunSpec(name="one"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "has no spec.json"), (b"\xff", "not UTF-8"), (b"{", "not JSON"), (b"{}", "schema version")],
)
def test_a_damaged_spec_is_reported_with_its_file(tmp_path: Path, content: bytes | None, reason: str) -> None:
    run = RunFolder(path=tmp_path)
    if content is not None:
        run.spec_file.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        run.spec()


def test_a_missing_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run 'gone'"):
        RunFolder(path=tmp_path / "gone").spec()


def test_only_a_committed_checkpoint_counts(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "checkpoints") is None
    for name, committed in [("step-00000005", True), ("step-00000030", False), ("step-x", True)]:
        (tmp_path / name).mkdir()
        if committed:
            (tmp_path / name / "commit-00000001.json").write_text("{}")
    assert newest_checkpoint(tmp_path) == 5


@pytest.mark.parametrize(
    ("flags", "config", "expected"),
    [
        ((), {}, "RUN/checkpoints"),
        (("--checkpoint_dir", "/x"), {"checkpoint_dir": "/y"}, "/x"),
        (("--checkpoint-dir=/x", "--checkpoint_dir=/z"), {}, "/z"),
        ((), {"checkpoint_dir": "file:///y"}, "/y"),
        ((), {"checkpoint_dir": "s3://bucket/y"}, None),
    ],
)
def test_checkpoints_are_read_from_the_checkpoint_folder_of_the_trainer(
    tmp_path: Path, flags: tuple[str, ...], config: dict[str, str], expected: str | None
) -> None:
    spec = RunSpec(name="one", trainer_flags=flags, trainer_config=config)
    found = checkpoint_folder(RunFolder(path=tmp_path), spec)
    assert (None if found is None else str(found).replace(str(tmp_path), "RUN")) == expected


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", None),
        ("all is well\n", None),
        ("error: first\nerror: second\nmore\n", "second"),
        (
            "Traceback (most recent call last):\n  File x\nRuntimeError: no memory\n",
            "RuntimeError: no memory",
        ),
        ("error: ours\nValueError: then\n", "ours"),
        ("error: of an old attempt\n=== launch 1, attempt 1 ===\nfine\n", None),
        ("error: torn", "torn"),
    ],
)
def test_the_last_error_is_that_of_the_newest_attempt(tmp_path: Path, log: str, error: str | None) -> None:
    (tmp_path / "rank-0.log").write_text(log)
    assert last_error(tmp_path / "rank-0.log") == error


def test_a_missing_log_has_no_last_error(tmp_path: Path) -> None:
    assert last_error(tmp_path / "rank-0.log") is None
