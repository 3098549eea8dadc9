"""The folder of a script's checkpoints is copied to the storage, and back to another node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from cloudrec.agent.upload.checkpoints import CheckpointFolder
from cloudrec.launchers.base.results_store import Place, open_place


class _Spy:
    """A storage that records the order of its files."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.uri = place.uri
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._place, name)

    def send(self, name: str, source: Path) -> None:
        self.sent.append(name)
        self._place.send(name, source)


def _folder(path: Path, place: Place) -> CheckpointFolder:
    return CheckpointFolder(path, place, say=lambda _: None, pause_s=0.01)


def _await(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_files_come_back_on_another_node_also_hidden_ones(tmp_path: Path) -> None:
    place, one, two = open_place(str(tmp_path / "store")), tmp_path / "one", tmp_path / "two"
    copied = _folder(one, place)
    copied.restore()
    copied.start()
    (one / "step-1").mkdir()
    (one / "step-1" / ".metadata").write_bytes(b"m")
    (one / "step-1" / "__0_0.distcp").write_bytes(b"shard")
    (one / "100%.pt").write_bytes(b"whole")
    _await(lambda: len(place.sizes("")) == 3)
    assert copied.finish(within_s=30)
    other = _folder(two, place)
    other.restore()
    assert {
        path.relative_to(two).as_posix(): path.read_bytes() for path in two.rglob("*") if path.is_file()
    } == {
        "step-1/.metadata": b"m",
        "step-1/__0_0.distcp": b"shard",
        "100%.pt": b"whole",
    }


def test_the_file_that_was_written_last_is_copied_last(tmp_path: Path) -> None:
    spy, folder = _Spy(open_place(str(tmp_path / "store"))), tmp_path / "one"
    folder.mkdir()
    for age, name in enumerate(("latest", "b", "a")):
        (folder / name).write_text(name, encoding="utf-8")
        os.utime(folder / name, (1000 - age, 1000 - age))
    copied = _folder(folder, spy)  # type: ignore[arg-type]  # it has all methods, by delegation
    copied.start()
    assert copied.finish(within_s=30)
    assert spy.sent == ["a", "b", "latest"]


def test_a_removed_file_is_removed_from_the_storage_and_a_changed_one_replaced(tmp_path: Path) -> None:
    place, folder = open_place(str(tmp_path / "store")), tmp_path / "one"
    folder.mkdir()
    (folder / "old").write_text("1", encoding="utf-8")
    (folder / "new").write_text("1", encoding="utf-8")
    copied = _folder(folder, place)
    copied.start()
    _await(lambda: set(place.sizes("")) == {"old", "new"})
    (folder / "old").unlink()
    (folder / "new").write_text("22", encoding="utf-8")
    _await(lambda: place.sizes("") == {"new": 2})
    assert copied.finish(within_s=30)


def test_a_storage_that_refuses_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file", encoding="utf-8")
    said: list[str] = []
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "a").write_text("1", encoding="utf-8")
    copied = CheckpointFolder(folder, open_place(str(tmp_path / "store")), say=said.append, pause_s=0.01)
    copied.start()
    assert not copied.finish(within_s=0.5)
    assert len(said) == 1
    assert said[0].startswith("warning: checkpoints are not copied for now")


def test_a_folder_that_was_not_started_has_nothing_to_finish(tmp_path: Path) -> None:
    assert _folder(tmp_path, open_place(str(tmp_path / "store"))).finish(within_s=0.1)
