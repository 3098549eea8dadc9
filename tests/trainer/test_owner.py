from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import pytest

from trainer.checkpoint.owner import FencedError, Ownership, claim, current_owner
from trainer.checkpoint.store import Store, StoreError, open_store
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def _commit(ownership: Ownership, step: int) -> None:
    """As a run commits: its number is in the name."""
    ownership.check()
    ownership.store.create(f"commits/{step:08d}-{ownership.number:08d}", b"")
    ownership.check()


def _commits(store: Store) -> dict[str, int]:
    return {name: int(name.rpartition("-")[2]) for name in store.sizes("commits/")}


def _claim(store: Store) -> Ownership:
    return claim(store, lambda: _commits(store))


def _counting(store: Store) -> list[int]:
    """The steps whose commits count."""
    owner = current_owner(store)
    counting = (name for name, number in _commits(store).items() if owner.counts(name, number))
    return [int(name.partition("/")[2].partition("-")[0]) for name in counting]


def test_numbers_rise_and_what_was_committed_goes_on_to_count(store: Store) -> None:
    for step in range(1, 4):
        ownership = _claim(store)
        assert ownership.number == step
        _commit(ownership, step)
        assert _counting(store) == list(range(1, step + 1))


def test_the_older_run_is_told_who_writes_now_and_what_it_commits_later_does_not_count(store: Store) -> None:
    older = _claim(store)
    _commit(older, 1)
    newer = _claim(store)
    with pytest.raises(FencedError, match=rf"another run \(process \d+ on {socket.gethostname()}, since 20"):
        older.check()
    store.create(f"commits/00000002-{older.number:08d}", b"")  # it had checked before the other came
    _commit(newer, 2)
    assert _counting(store) == [1, 2]
    assert sorted(_commits(store)) == [
        "commits/00000001-00000001",
        "commits/00000002-00000001",
        "commits/00000002-00000002",
    ]
    assert _counting(store) == _counting(open_store(store.uri))
    _claim(store)
    assert _counting(store) == [1, 2]


def test_a_fenced_run_is_not_worth_starting_again() -> None:
    assert FencedError.exit_code == 64
    assert issubclass(FencedError, CheckpointError)


def test_a_claim_that_died_before_it_took_over_loses_nothing(store: Store) -> None:
    older = _claim(store)
    _commit(older, 1)
    with pytest.raises(RuntimeError, match="killed"):
        claim(store, _die)
    assert _counting(store) == [1]
    with pytest.raises(FencedError):
        older.check()
    newer = _claim(store)
    assert newer.number == 3
    assert _counting(store) == [1]


def _die() -> dict[str, int]:
    raise RuntimeError("killed")


def test_a_commit_made_while_another_claims_counts_if_its_writer_saw_no_claim_yet(store: Store) -> None:
    older = _claim(store)
    _commit(older, 1)  # final: no claim was there when it had been made

    def commits_late() -> dict[str, int]:
        store.create(f"commits/00000002-{older.number:08d}", b"")  # between the claim and the look
        return _commits(store)

    claim(store, commits_late)
    assert _counting(store) == [1, 2]
    with pytest.raises(FencedError):
        older.check()


def test_whatever_the_clock_says_the_higher_number_owns(store: Store) -> None:
    older = _claim(store)
    document = json.loads(store.read("owners/00000001.json"))
    store.create("owners/00000002.json", json.dumps({**document, "time": "1970-01-01T00:00:00"}).encode())
    with pytest.raises(FencedError, match="since 1970"):
        older.check()


def test_of_many_that_claim_at_once_one_can_commit_and_no_final_commit_is_lost(store: Store) -> None:
    final: list[int] = []
    guard = threading.Lock()

    def run(first: int) -> None:
        with suppress(FencedError):
            ownership = _claim(store)
            for step in range(first, first + 20):
                _commit(ownership, step)
                with guard:
                    final.append(step)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(run, range(100, 700, 100)))
    assert len(final) >= 20
    assert set(final) <= set(_counting(store))


def test_a_damaged_list_of_what_was_taken_over_loses_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    _commit(_claim(store), 1)
    _claim(store)
    with store.write("owners/00000002-adopted.json") as file:
        file.write(b'{"adopted": [')
    assert _counting(store) == [1]
    assert "owners/00000002-adopted.json: damaged" in caplog.text


def test_old_claims_are_forgotten(store: Store) -> None:
    for _ in range(30):
        newest = _claim(store)
    assert newest.number == 30
    assert min(store.sizes("owners/")) == "owners/00000021-adopted.json"
    newest.check()


class _Careless:
    """A store that replaces what has the name, as some that speak S3's language do."""

    def __init__(self, store: Store) -> None:
        self.uri = store.uri
        self._store = store
        self.read, self.local_file, self.sizes = store.read, store.local_file, store.sizes
        self.tidy = store.tidy

    def create(self, name: str, data: bytes) -> None:
        with self._store.write(name) as file:
            file.write(data)

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._store.write(name)

    def remove(self, names: Iterable[str]) -> None:
        self._store.remove(names)


def test_a_store_that_lets_two_writers_have_one_name_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="honours conditional writes"):
        _claim(_Careless(store))
