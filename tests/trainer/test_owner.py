from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.base import Store, StoreError, open_store
from trainer.checkpoint.store.owner import FencedError, Ownership, claim, current_owner

if TYPE_CHECKING:
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


def test_run_numbers_increase_and_earlier_commits_remain_valid(store: Store) -> None:
    for step in range(1, 4):
        ownership = _claim(store)
        assert ownership.number == step
        _commit(ownership, step)
        assert _counting(store) == list(range(1, step + 1))


def test_the_older_run_is_fenced_and_its_later_commits_are_ignored(
    store: Store,
) -> None:
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


def test_a_fenced_run_is_not_restarted() -> None:
    assert FencedError.exit_code == 64
    assert issubclass(FencedError, CheckpointError)


def test_an_unfinished_claim_loses_no_commit(store: Store) -> None:
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


def test_a_commit_concurrent_with_a_claim_counts_if_its_writer_saw_no_claim(store: Store) -> None:
    older = _claim(store)
    _commit(older, 1)  # final: no claim was there when it had been made

    def commits_late() -> dict[str, int]:
        store.create(f"commits/00000002-{older.number:08d}", b"")  # between the claim and the look
        return _commits(store)

    claim(store, commits_late)
    assert _counting(store) == [1, 2]
    with pytest.raises(FencedError):
        older.check()


def test_the_higher_number_owns_regardless_of_the_clock(store: Store) -> None:
    older = _claim(store)
    document = json.loads(store.read("owners/00000001.json"))
    store.create("owners/00000002.json", json.dumps({**document, "time": "1970-01-01T00:00:00"}).encode())
    with pytest.raises(FencedError, match="since 1970"):
        older.check()


def test_of_concurrent_claims_one_can_commit_and_no_final_commit_is_lost(store: Store) -> None:
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


def test_a_damaged_takeover_list_loses_no_commit(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    _commit(_claim(store), 1)
    _claim(store)
    with store.write("owners/00000002-adopted.json") as file:
        file.write(b'{"adopted": [')
    assert _counting(store) == [1]
    assert "owners/00000002-adopted.json: damaged" in caplog.text


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("file", ["owners/{:08d}.json", "owners/{:08d}-adopted.json"])
def test_a_lost_claim_file_loses_no_commit_and_its_number_is_not_reused(
    store: Store, runs: int, file: str
) -> None:
    for step in range(1, runs + 1):
        _commit(_claim(store), step)
    store.remove([file.format(runs)])
    assert _counting(store) == list(range(1, runs + 1))
    assert _claim(store).number > runs
    assert _counting(store) == list(range(1, runs + 1))


def test_old_claims_are_deleted(store: Store) -> None:
    for _ in range(30):
        newest = _claim(store)
    assert newest.number == 30
    assert min(store.sizes("owners/")) == "owners/00000021-adopted.json"
    newest.check()


class _Careless(Store):
    """A store that replaces what has the name, as some that speak S3's language do."""

    def create(self, name: str, data: bytes) -> None:
        self.objects.put(name, data)


def test_a_store_without_conditional_creation_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="honours conditional writes"):
        _claim(_Careless(store.objects))
