"""The pool of ranks of other tests: a test never gets the answer to another test's call."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import distributed

from tests.trainer.support_ranks import RankPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.support_ranks import Place

_PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    with RankPool(2, tmp_path_factory.mktemp("pool")) as made:
        yield made


def _number(_: Place, number: int) -> int:
    return number


def _sum(place: Place) -> float:
    total = torch.ones(1)
    distributed.all_reduce(total, group=place.group)
    return float(total)


def _answer_late(_: Place, gate: str) -> str:
    give_up = time.monotonic() + _PATIENCE_S
    while not Path(gate).exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    return "late"


def _fail_on_rank_1(place: Place) -> float:
    if place.rank == 1:
        raise ValueError("this rank alone fails")
    return _sum(place)


def _die_on_rank_1(place: Place) -> int:
    if place.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return place.rank


def _check_next_calls(pool: RankPool) -> None:
    assert pool.run(2, _number, 7) == [7, 7]
    assert pool.run(2, _sum) == [2.0, 2.0]


def test_a_late_answer_is_not_used_for_the_next_call(pool: RankPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    usual, pool.answer_s = pool.answer_s, 0.1
    with pytest.raises(AssertionError, match=r"(?s)rank 0: did not answer in time.*_answer_late.*rank 1: "):
        pool.run(2, _answer_late, str(gate))
    gate.touch()
    pool.answer_s = usual
    _check_next_calls(pool)


def test_ranks_that_wait_for_a_failed_peer_do_not_affect_the_next_call(pool: RankPool) -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 0: .*rank 1: .*this rank alone fails"):
        pool.run(2, _fail_on_rank_1)
    _check_next_calls(pool)


def test_a_dead_rank_is_replaced(pool: RankPool) -> None:
    with pytest.raises(AssertionError, match="rank 1: its process died"):
        pool.run(2, _die_on_rank_1)
    _check_next_calls(pool)
