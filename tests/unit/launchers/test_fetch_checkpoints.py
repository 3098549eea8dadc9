"""A run's checkpoints are copied from its storage, without names that lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.launchers.base import results
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec

FILES = {
    "step-00000005/rank-00000.1.1.bin": b"five",
    "step-00000005/commit-00000001.json": b"{}",
    "vocabulary/abc/city.jsonl": b'"bern"\n',
}


def _written(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _fill(folder: Path) -> None:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("where", ["in the run's folder", "elsewhere"])
def test_checkpoints_are_copied_on_request(tmp_path: Path, where: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    flags = ("--checkpoint_dir", str(elsewhere)) if where == "elsewhere" else ()
    spec = RunSpec(name="r", launcher="ray", storage=str(tmp_path / "store"), trainer_flags=flags)
    assert spec.checkpoints.startswith(str(elsewhere)) == (where == "elsewhere")
    run: RunFolder = create_run(tmp_path / "runs", spec)
    _fill(Path(spec.checkpoints))
    assert not results.bring(run, spec, everything=True)
    assert not (run.path / "checkpoints").exists()
    assert not results.bring(run, spec, everything=True, checkpoints=True)
    assert _written(run.path / "checkpoints") == FILES
    assert not results.bring(run, spec, checkpoints=True)  # again: nothing has changed
    assert _written(run.path / "checkpoints") == FILES


def test_commits_are_copied_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec(name="r", launcher="ray", storage=str(tmp_path / "store"))
    run = create_run(tmp_path / "runs", spec)
    _fill(Path(spec.checkpoints))
    place, fetched = open_place(spec.checkpoints), list[str]()

    def fetch(name: str, target: Path) -> None:
        fetched.append(name)
        target.write_bytes(FILES[name])

    monkeypatch.setattr(place, "fetch", fetch)
    monkeypatch.setattr("cloudrec.launchers.base.results.open_place", lambda *_: place)
    results.bring(run, spec, checkpoints=True)
    assert len(fetched) == len(FILES)
    assert fetched[-1] == "step-00000005/commit-00000001.json"


def test_a_name_that_is_a_folder_here_is_skipped(tmp_path: Path) -> None:
    spec = RunSpec(name="r", launcher="ray", storage=str(tmp_path / "store"))
    run = create_run(tmp_path / "runs", spec)
    _fill(Path(spec.checkpoints))
    taken = "step-00000005/rank-00000.1.1.bin"
    (run.path / "checkpoints" / taken).mkdir(parents=True)
    (skipped,) = results.bring(run, spec, checkpoints=True)
    assert skipped.name == f"checkpoints/{taken}"
    assert "is both a file's and a folder's" in skipped.reason
    others = {name: data for name, data in FILES.items() if name != taken}
    assert _written(run.path / "checkpoints") == others
