"""CLOUDREC_HOME, its locks and its atomic writes."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec.cli.main import run
from cloudrec.engine.journal import Journal
from cloudrec.errors import BusyError, StorageError
from cloudrec.home import Home, is_locked, locked, make_private, refuse_shared, write_atomically


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


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    link = tmp_path / "home" / "locks" / "x"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(StorageError, match="symbolic link"), locked(link, what="cluster 'x'"):
        pass
    with pytest.raises(StorageError, match="symbolic link"):
        is_locked(link)
    assert target.read_text() == "kept"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_home_that_others_may_write_is_refused(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    monkeypatch.setenv("CLOUDREC_HOME", str(home))
    assert run(["status"]) == 1
    said = capsys.readouterr().err
    assert f"other users may write {home} (mode 0{mode:o})" in said
    assert f"chmod go-w {home}" in said
    home.chmod(0o755)
    assert run(["status"]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_home_of_another_user_is_refused_but_for_the_caller_of_sudo(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, -1)
    with pytest.raises(StorageError, match="belongs to the user with id 4711, and this is 0"):
        refuse_shared(tmp_path, {})
    refuse_shared(tmp_path, {"SUDO_UID": "4711"})


def test_a_journal_is_private_in_a_home_that_others_may_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    Journal(home / "journal.sqlite")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert set(modes.values()) == {0o600}
