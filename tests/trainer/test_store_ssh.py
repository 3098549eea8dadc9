"""A login node's folder as an object store: what its ssh and its programs do with it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.base import ObjectStore, StoreOptions, UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import (
    DamagedUploadError,
    FileSystemError,
    HostRefusedError,
    HostTimeoutError,
    HostUnreachableError,
    MissingProgramError,
    NoObjectError,
    ObjectExistsError,
    ObjectStoreError,
    StoreUriError,
    UnknownHostKeyError,
)
from cloudrec_contract.objectstore.retries import Patience
from tests.standins import login_node
from tests.standins.login_node import LoginNode
from trainer.base.errors import ConfigError
from trainer.checkpoint.store.base import open_store

LARGE = bytes(range(256)) * 4_000


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    return login_node.install(tmp_path / "ssh", monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "there" / "it's $HOME & more"


@pytest.fixture
def store(node: LoginNode, root: Path) -> ObjectStore:
    return opened(node, root)


def opened(
    node: LoginNode, root: Path, *, answer_s: float = 20.0, environment: dict[str, str] | None = None
) -> ObjectStore:
    patience = Patience(answer_s=answer_s, attempts=2, rounds=2, pause_s=0.0)
    return stores.open_store(node.uri(root), StoreOptions(patience=patience, environment=environment or {}))


def file_of(path: Path, data: bytes) -> UploadFile:
    path.write_bytes(data)
    return UploadFile(path=path, size=len(data), crc32=crc32_of(path))


def drafts(root: Path) -> list[Path]:
    return list(root.rglob(".*"))


def test_a_folder_that_is_not_there_yet_is_fine(store: ObjectStore, root: Path) -> None:
    store.check()
    assert (store.sizes(), store.children(), store.children("a")) == ({}, {}, {})
    store.tidy()
    store.remove(["a/b"])
    assert not root.exists()


def test_a_file_in_place_of_the_folder_is_reported(store: ObjectStore, root: Path) -> None:
    root.parent.mkdir()
    root.write_bytes(b"")
    with pytest.raises(FileSystemError, match="is no folder"):
        store.check()
    with pytest.raises(FileSystemError):
        store.put("a", b"x")
    with pytest.raises(NoObjectError):
        store.read("a")


def test_put_replaces_and_objects_are_the_files_of_that_folder(store: ObjectStore, root: Path) -> None:
    store.put("pods/a b/x\ny'z", b"first")
    store.put("pods/a b/x\ny'z", LARGE)
    assert (root / "pods" / "a b" / "x\ny'z").read_bytes() == LARGE
    assert store.read("pods/a b/x\ny'z") == LARGE
    assert store.sizes("pods/") == {"pods/a b/x\ny'z": len(LARGE)}
    assert drafts(root) == []


def test_children_are_the_files_and_folders_of_one_folder(store: ObjectStore, root: Path) -> None:
    for name in ("b/1", "b/2/3", "a"):
        store.put(name, name.encode())
    (root / ".hidden").mkdir()
    (root / "b" / ".hidden").write_text("")
    (root / "gone").symlink_to(root / "nowhere")
    assert store.children() == {"a": 1, "b": -1}
    assert store.children("b/") == store.children("b") == {"1": 3, "2": -1}
    assert store.children("a") == {}
    assert list(store.sizes()) == ["a", "b/1", "b/2/3"]


def test_a_folder_in_place_of_an_object_is_reported(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    for action in (lambda: store.read("a"), lambda: store.read("a", 0, 4), lambda: store.put("a", b"x")):
        with pytest.raises(FileSystemError, match=r"folder|directory"):
            action()
    with pytest.raises(FileSystemError):
        store.remove(["a"])
    assert store.read("a/b") == b"x"


def test_a_download_is_whole_or_not_there(store: ObjectStore, node: LoginNode, tmp_path: Path) -> None:
    store.put("a", LARGE)
    target = tmp_path / "here" / "a"
    target.parent.mkdir()
    node.fail("lose")
    store.download("a", target)
    assert target.read_bytes() == LARGE
    with pytest.raises(NoObjectError):
        store.download("b", target.with_name("b"))
    with pytest.raises(FileSystemError) as caught:
        store.download("a", tmp_path / "nowhere" / "a")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert list(target.parent.iterdir()) == [target]


def test_an_upload_reports_its_progress_and_is_verified(
    store: ObjectStore, root: Path, tmp_path: Path
) -> None:
    file, sent = file_of(tmp_path / "file", LARGE), list[int]()
    assert not store.holds("train/x", file)
    store.upload("train/x", file, sent.append)
    assert sum(sent) == len(LARGE)
    assert store.holds("train/x", file)
    (root / "train" / "x").write_bytes(LARGE[::-1])
    assert not store.holds("train/x", file)
    (root / "train" / "x").write_bytes(LARGE[1:])
    assert not store.holds("train/x", file)
    file.path.write_bytes(LARGE[::-1])
    with pytest.raises(DamagedUploadError):
        store.upload("train/x", file, sent.append)
    (root / "train" / "x").write_bytes(LARGE[::-1])
    assert not store.holds("train/x", file)  # both are damaged


def test_an_upload_ends_if_its_progress_callback_fails(
    store: ObjectStore, root: Path, tmp_path: Path
) -> None:
    def stop(_sent: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        store.upload("x", file_of(tmp_path / "file", LARGE), stop)
    assert not (root / "y").exists()


def test_an_upload_that_is_cut_off_never_gets_its_name(
    store: ObjectStore, node: LoginNode, root: Path, tmp_path: Path
) -> None:
    file, sent = file_of(tmp_path / "file", LARGE), list[int]()
    uploads: list[Callable[[], None]] = [
        lambda: store.upload("x", file, sent.append),
        lambda: store.put("x", LARGE),
        lambda: store.create("x", LARGE),
    ]
    for send in uploads:
        node.fail("cut", times=4)
        with pytest.raises(HostUnreachableError):
            send()
        for left in (node.folder / "faults").iterdir():
            left.unlink()
        assert store.sizes() == {}
        assert drafts(root) == []


def test_a_creation_whose_answer_is_lost_has_succeeded(store: ObjectStore, node: LoginNode) -> None:
    node.fail("lose")
    store.create("owners/1", b"mine")
    node.fail("lose")
    with pytest.raises(ObjectExistsError):
        store.create("owners/1", b"yours")
    assert store.read("owners/1") == b"mine"


def test_drafts_are_no_objects_and_tidying_deletes_them(store: ObjectStore, root: Path) -> None:
    store.put("a/b", b"x")
    (root / "a" / ".part-dead").write_bytes(b"y")
    (root / "a" / ".mine").write_bytes(b"z")
    assert store.sizes() == {"a/b": 1}
    store.tidy()
    assert drafts(root) == [root / "a" / ".mine"]


def test_others_may_remove_empty_folders_at_any_time(store: ObjectStore, root: Path) -> None:
    local = stores.open_store(str(root))

    def come_and_go(worker: int) -> None:
        for _ in range(5):
            store.put(f"step-1/{worker}", b"x")
            local.remove([f"step-1/{worker}"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, range(4)))
    assert store.sizes() == {}


def test_many_names_are_removed_by_few_commands(store: ObjectStore, node: LoginNode, root: Path) -> None:
    folder = root / ("x" * 200)
    folder.mkdir(parents=True)
    names = [f"{folder.name}/{number:04}" for number in range(1000)]
    for name in names:
        (root / name).touch()
    store.remove(names)
    assert store.sizes() == {}
    assert 2 < len(node.calls()) < 10


def test_a_login_node_that_is_not_reached_for_a_moment_is_asked_again(
    store: ObjectStore, node: LoginNode
) -> None:
    store.put("a", b"x")
    node.fail("refuse", times=3)
    assert store.read("a") == b"x"
    node.fail("refuse", times=4)
    with pytest.raises(HostUnreachableError, match="Connection reset by peer") as caught:
        store.read("a")
    assert caught.value.where == login_node.HOST
    assert caught.value.may_pass


def test_a_login_node_that_hangs_is_given_up(node: LoginNode, root: Path) -> None:
    node.fail("hang", times=2)
    began = time.monotonic()
    with pytest.raises(HostTimeoutError, match=r"sh on me@login: did not answer within 0\.5 s"):
        opened(node, root, answer_s=0.5).read("a")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("me@login: Permission denied (publickey).", HostRefusedError),
        ("Host key verification failed.", UnknownHostKeyError),
    ],
)
def test_a_login_node_that_refuses_is_not_asked_again(
    store: ObjectStore, node: LoginNode, words: str, kind: type[ObjectStoreError]
) -> None:
    node.fail("refuse", words)
    with pytest.raises(kind, match=words.rsplit(":", maxsplit=1)[-1].strip(" .()").partition(" (")[0]):
        store.sizes()
    assert len(node.calls()) == 1


def test_a_machine_without_ssh_is_reported(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgramError, match="ssh: is not installed, and me@login"):
        store.check()


def test_a_variable_names_the_configuration_of_ssh(
    node: LoginNode, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_SSH_CONFIG", "/process")
    opened(node, root).check()
    opened(node, root, environment={"CLOUDREC_SSH_CONFIG": "/run"}).check()
    process, run = node.calls()
    assert " -F /process " in process
    assert " -F /run " in run


@pytest.mark.parametrize("uri", ["ssh://", "ssh://login", "ssh://login/", "ssh:///folder"])
def test_a_uri_without_a_host_or_a_folder_is_refused(uri: str) -> None:
    with pytest.raises(StoreUriError, match=r"it is ssh://USER@HOST/FOLDER"):
        stores.open_store(uri)


def test_the_trainer_keeps_no_checkpoints_there(node: LoginNode, root: Path) -> None:
    with pytest.raises(ConfigError, match=r"scheme 'ssh' is not supported, only a path, abfs://.* s3://$"):
        open_store(node.uri(root))


def test_scripts_are_what_any_login_shell_passes_on() -> None:
    """csh takes no line break in quotes, and replaces `!`."""
    from cloudrec_contract.objectstore.ssh import store  # noqa: PLC0415

    scripts = [text for name, text in vars(store).items() if isinstance(text, str) and name[1:].isupper()]
    assert len(scripts) > 5
    for script in scripts:
        assert "\n" not in script
        assert "!" not in script
        assert subprocess.run(["sh", "-n", "-c", f": {script}"], check=False).returncode == 0
