"""CLOUDREC_HOME, its locks and its atomic writes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec.errors import BusyError, StorageError
from cloudrec.home import Home, is_locked, locked, make_private, write_atomically


def test_the_home_is_set_by_the_environment(tmp_path: Path) -> None:
    assert Home.from_environment({"CLOUDREC_HOME": str(tmp_path)}).runs == tmp_path / "runs"
    assert Home.from_environment({}).root == Path.home() / ".cloudrec"


def test_a_held_lock_refuses_a_second_process_and_names_the_first(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with locked(lock, what="cluster 'dev'"):
        assert is_locked(lock)
        with (
            pytest.raises(BusyError, match=r"cluster 'dev' is in use by process \d+"),
            locked(lock, what="cluster 'dev'"),
        ):
            pass
    assert not is_locked(lock)


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    program = (
        "import sys, pathlib\nfrom cloudrec.home import locked\n"
        "with locked(pathlib.Path(sys.argv[1]), what='it'):\n print('held', flush=True)\n sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(lock)
        holder.kill()
    with locked(lock, what="it"):
        assert is_locked(lock)


def test_an_atomic_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_atomically(target, "one")
    write_atomically(target, "two")
    assert target.read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_threads_that_write_one_file_at_the_same_time_do_not_fail(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with ThreadPoolExecutor(max_workers=4) as pool:
        for done in [pool.submit(write_atomically, target, str(number) * 1000) for number in range(200)]:
            done.result()
    assert len(set(target.read_text())) <= len("199")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_file_instead_of_the_home_folder_is_reported_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StorageError, match="cannot write") as caught:
        make_private(tmp_path / "home" / "runs")
    assert caught.value.remedy is not None


def test_a_home_is_private(tmp_path: Path) -> None:
    assert make_private(tmp_path / "h" / "runs").stat().st_mode & 0o077 == 0
    assert (tmp_path / "h").stat().st_mode & 0o077 == 0


def test_checking_a_lock_does_not_acquire_it(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with locked(lock, what="it"):
        pass
    with lock.open("r+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH | fcntl.LOCK_NB)  # another process that checks the lock
        assert not is_locked(lock)
