"""The guarantees of every kind of store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cloudrec_contract.objectstore import open as stores
from tests.standins import login_node
from tests.trainer.support_clouds import CLOUDS, CloudPlace
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.store.base import MissingError, NameTakenError, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(params=["local", "ssh", *CLOUDS])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enter_cloud: Callable[[str], CloudPlace],
) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "checkpoints"))
    if request.param == "ssh":  # which the trainer itself does not open
        node = login_node.install(tmp_path / "ssh", monkeypatch)
        return Store(stores.open_store(node.uri(tmp_path / "checkpoints")))
    return open_store(enter_cloud(request.param).new_uri())


def test_an_object_is_read_completely_and_in_ranges(store: Store) -> None:
    store.create("step-00000001/commit.json", b"0123456789")
    assert store.read("step-00000001/commit.json") == b"0123456789"
    assert store.read("step-00000001/commit.json", 3) == b"3456789"
    assert store.read("step-00000001/commit.json", 3, 4) == b"3456"
    assert store.read("step-00000001/commit.json", 8, 4) == b"89"
    assert store.read("step-00000001/commit.json", 10) == b""
    assert store.read("step-00000001/commit.json", 2, 0) == b""


def test_an_object_name_is_created_only_once(store: Store) -> None:
    store.create("owners/00000001.json", b"mine")
    with pytest.raises(NameTakenError, match=r"owners/00000001\.json: is there already"):
        store.create("owners/00000001.json", b"yours")
    assert store.read("owners/00000001.json") == b"mine"


def test_creating_the_same_bytes_again_succeeds(store: Store) -> None:
    store.create("owners/00000001.json", b"mine")
    store.create("owners/00000001.json", b"mine")
    assert store.sizes() == {"owners/00000001.json": 4}


def test_one_of_many_concurrent_creations_of_a_name_succeeds(store: Store) -> None:
    def attempt(token: int) -> int | None:
        try:
            store.create("owners/00000001.json", str(token).encode() * 1000)
        except NameTakenError:
            return None
        return token

    with ThreadPoolExecutor(8) as threads:
        winners = [token for token in threads.map(attempt, range(24)) if token is not None]
    assert [str(token).encode() * 1000 for token in winners] == [store.read("owners/00000001.json")]


def test_a_stream_appears_atomically_when_closed_and_replaces_the_object(store: Store) -> None:
    with store.write("step-00000001/rank-0.bin") as file:
        file.write(b"first")
    with store.write("step-00000001/rank-0.bin") as file:
        file.write(b"sec")
        file.write(memoryview(b"ond"))
        assert file.tell() == 6
        assert store.read("step-00000001/rank-0.bin") == b"first"
        assert store.sizes() == {"step-00000001/rank-0.bin": 5}
    assert store.read("step-00000001/rank-0.bin") == b"second"


def test_a_failed_stream_leaves_no_object(store: Store) -> None:
    with pytest.raises(RuntimeError, match="halfway"), store.write("rank-0.bin") as file:  # noqa: PT012
        file.write(b"x" * 1000)
        raise RuntimeError("halfway")
    assert store.sizes() == {}


def test_an_empty_stream_is_an_empty_object(store: Store) -> None:
    with store.write("empty.bin"):
        pass
    assert store.read("empty.bin") == b""
    assert store.sizes() == {"empty.bin": 0}


def test_sizes_lists_names_by_prefix_in_order(store: Store) -> None:
    assert store.sizes() == {}
    for name in ("step-00000002/b", "step-00000002/a", "step-00000010/c", "owners/1"):
        store.create(name, name.encode())
    assert list(store.sizes()) == ["owners/1", "step-00000002/a", "step-00000002/b", "step-00000010/c"]
    assert store.sizes("step-00000002/") == {"step-00000002/a": 15, "step-00000002/b": 15}
    assert list(store.sizes("step-000000")) == ["step-00000002/a", "step-00000002/b", "step-00000010/c"]
    assert store.sizes("nothing/") == {}
    assert store.sizes("owners/1/deeper") == {}


def test_removed_objects_are_gone_and_absent_names_are_ignored(store: Store) -> None:
    for name in ("a/1", "a/2", "b/1"):
        store.create(name, b"x")
    store.remove(["a/1", "a/2", "a/3", "c"])
    assert store.sizes() == {"b/1": 1}
    store.create("a/1", b"y")
    assert store.read("a/1") == b"y"
    store.remove([])


def test_a_missing_name_is_reported(store: Store) -> None:
    store.create("there", b"")
    with pytest.raises(MissingError, match="step-00000001/gone"):
        store.read("step-00000001/gone")
    with pytest.raises(MissingError):
        store.read("step-00000001/gone", 5, 5)
    assert issubclass(MissingError, CheckpointError)


def test_tidying_changes_no_object(store: Store) -> None:
    store.create("a/1", b"x")
    with store.write("a/2") as file:
        file.write(b"yy")
    store.tidy()
    assert store.sizes() == {"a/1": 1, "a/2": 2}


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", ".tmp/a"])
def test_an_invalid_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name in a store"):
        store.create(name, b"")


@pytest.mark.parametrize("uri", ["ftp://host/a", "file://elsewhere/a", "memory://a"])
def test_a_uri_of_an_unknown_kind_is_reported(uri: str) -> None:
    with pytest.raises(ConfigError, match="checkpoint_dir"):
        open_store(uri)
