from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec_contract.objectstore.errors import ObjectExistsError
from cloudrec_contract.objectstore.local.store import LocalStore
from trainer.checkpoint.store.base import MissingError, StoreError, open_store

DIES_WHILE_WRITING = """
import os, signal, sys
from trainer.checkpoint.store.base import open_store
with open_store(sys.argv[1]).write("step-00000001/rank-0.bin") as file:
    file.write(b"x" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
HEAVY_MODULES = """
import sys
import trainer.checkpoint.store.base
trainer.checkpoint.store.base.open_store("somewhere")
print(sorted({"torch", "torchrec", "numpy", "fsspec"} & set(sys.modules)))
"""


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_a_killed_writer_leaves_no_object_and_tidying_deletes_its_files(tmp_path: Path) -> None:
    assert _python(DIES_WHILE_WRITING, str(tmp_path)).returncode == -signal.SIGKILL
    store = open_store(str(tmp_path))
    assert store.sizes() == {}
    assert len(list((tmp_path / ".tmp").iterdir())) == 1
    store.tidy()
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_opening_a_store_imports_no_heavy_module_and_creates_nothing(tmp_path: Path) -> None:
    found = _python(HEAVY_MODULES)
    assert found.stdout == "[]\n", found.stderr
    open_store(str(tmp_path / "new")).sizes()
    assert not (tmp_path / "new").exists()


def test_a_file_uri_names_the_same_store_as_its_path(tmp_path: Path) -> None:
    open_store(str(tmp_path)).create("a", b"x")
    assert open_store(tmp_path.as_uri()).read("a") == b"x"
    assert open_store(tmp_path.as_uri()).local_file("a") == tmp_path / "a"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_a_name_is_still_created_only_once(tmp_path: Path, number: int) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), source, None, target)

    store = LocalStore(tmp_path, link=refuse)
    store.create("owners/1", b"mine")
    store.create("owners/1", b"mine")
    with pytest.raises(ObjectExistsError):
        store.create("owners/1", b"yours")
    assert store.read("owners/1") == b"mine"


def test_empty_folders_are_removed_and_can_be_recreated_at_any_time(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))

    def come_and_go(worker: int) -> None:
        for _ in range(50):
            store.create(f"step-00000001/{worker}", b"x")
            store.remove([f"step-00000001/{worker}"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, range(4)))
    assert not (tmp_path / "step-00000001").exists()


def test_hidden_files_are_not_objects(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("me")
    assert open_store(str(tmp_path)).sizes() == {}


def test_a_full_disk_is_reported_and_existing_objects_are_intact(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.create("a", b"before")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the nearest thing to a full disk
    try:
        with pytest.raises(StoreError, match="free space"), store.write("a") as file:
            file.write(b"x" * 10_000)
        with pytest.raises(StoreError, match="free space"):
            store.create("b", b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.sizes() == {"a": 6}
    assert store.read("a") == b"before"


def test_a_path_that_cannot_be_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_store(str(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"file.*Not a directory"):
        store.create("a", b"x")
    with pytest.raises(StoreError, match="Not a directory"):
        store.read("a")
    assert store.sizes() == {}
    assert not isinstance(StoreError("x"), MissingError)
