"""The exchanges between ranks: when they come, and how a bad loss is found by them."""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from cloudrec_contract.interval import CheckpointTimer, Every, SaveCosts
from tests.trainer.support_learner import make_world
from trainer.loop.boundary import MOST_STEPS, POLL_S, Boundary
from trainer.preempt import Notice, StopFlag
from trainer.report.ledger import GoodputLedger
from trainer.report.window import LossWatch, WatchedStep

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place, RankPool
    from tests.trainer.support_worlds import Worlds

LONG_S = 0.3


def _boundary(place: Place, folder: str, *, steps: int = 0) -> Boundary:
    ledger = GoodputLedger(Path(folder) / f"goodput-{place.rank}.jsonl", active=False, restarted=False)
    boundary = Boundary(make_world(place), StopFlag(), CheckpointTimer(Every(steps=steps)), ledger)
    boundary.begin(0)
    return boundary


def _asked(boundary: Boundary, durations_s: list[float]) -> list[int]:
    """The steps after which the ranks exchange, if steps take so long."""
    asked = []
    for step, seconds in enumerate(durations_s, 1):
        time.sleep(seconds)
        if boundary.is_due(step, last=False):
            asked.append(step)
            boundary.ask(step, last=False, committed=False, bad_step=0)
    return asked


def _asked_of_quick_steps(place: Place, folder: str) -> list[int]:
    return _asked(_boundary(place, folder), [0.0] * 1000)


def _asked_of_slow_steps(place: Place, folder: str) -> list[int]:
    """Only one rank is slow; it is another one than the one that is fast."""
    slow = LONG_S if place.rank else 0.0
    return _asked(_boundary(place, folder), [slow] * 9)


def _asked_when_steps_slow_down(place: Place, folder: str) -> list[int]:
    return _asked(_boundary(place, folder), [0.0] * 300 + [0.1] * 30)


def _asked_by_steps(place: Place, folder: str) -> list[int]:
    return _asked(_boundary(place, folder, steps=37), [0.0] * 200)


class _Fixed:
    def __init__(self, seconds: float) -> None:
        self.ends_at = time.monotonic() + seconds

    def notice(self) -> Notice:
        return Notice(source="test", reason="taken back", ends_at=self.ends_at, fixed=True)


def _stops(
    place: Place, folder: str, announced: int | None, machines: int, seconds: float
) -> tuple[bool, bool]:
    """Whether ranks with SIGTERM stop now, and whether they save; a save takes a second.

    Rank 1 has the signal, and rank `announced` the notice of an end in some seconds.
    """
    ledger = GoodputLedger(Path(folder) / f"goodput-{place.rank}.jsonl", active=False, restarted=False)
    flag = StopFlag([_Fixed(seconds)] if place.rank == announced else [], grace_s=60)
    world = replace(make_world(place), local_size=place.world_size // machines)
    timer = CheckpointTimer(Every(steps=0), costs=SaveCosts([0.0], [1.0]))
    boundary = Boundary(world, flag, timer, ledger)
    boundary.begin(0)
    flag.install()
    try:
        if place.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        verdict = boundary.ask(1, last=False, committed=True, bad_step=0)
    finally:
        flag.uninstall()
    return verdict.stop, verdict.save


@pytest.mark.parametrize(
    ("announced", "machines", "seconds", "stops"),
    [
        pytest.param(0, 1, 40.0, (False, False), id="another rank of the machine has the notice"),
        pytest.param(1, 2, 40.0, (False, False), id="it has the notice itself"),
        pytest.param(0, 2, 40.0, (True, True), id="another machine ends, and a user stops this one"),
        pytest.param(None, 1, 40.0, (True, True), id="a user stops the run"),
        pytest.param(0, 1, 6.0, (True, True), id="the time that is left is for the save"),
        pytest.param(0, 1, 0.5, (True, False), id="no time for a save"),
    ],
)
def test_ranks_train_until_their_machine_ends_though_it_is_drained(  # noqa: PLR0917 - a table
    ranks: RankPool,
    tmp_path: Path,
    announced: int | None,
    machines: int,
    seconds: float,
    stops: tuple[bool, bool],
) -> None:
    assert ranks.run(2, _stops, str(tmp_path), announced, machines, seconds) == [stops, stops]


def _gaps(asked: list[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise([0, *asked])]


def test_quick_steps_are_not_interrupted_by_exchanges(ranks: RankPool, tmp_path: Path) -> None:
    first, second = ranks.run(2, _asked_of_quick_steps, str(tmp_path))
    assert first == second
    gaps = _gaps(first)
    assert gaps[0] == 1
    assert all(after <= min(2 * before, MOST_STEPS) for before, after in itertools.pairwise(gaps))
    assert len(gaps) < 60


def test_slow_steps_of_one_rank_bring_an_exchange_a_second(ranks: RankPool, tmp_path: Path) -> None:
    first, second = ranks.run(2, _asked_of_slow_steps, str(tmp_path))
    assert first == second
    assert max(_gaps(first)) * LONG_S <= POLL_S


def test_a_rank_alone_asks_by_the_clock(worlds: Worlds, tmp_path: Path) -> None:
    """Its steps become slow within a gap that was chosen for quick ones."""
    asked = worlds.run(1, _asked_when_steps_slow_down, str(tmp_path))[0]
    slow = [step for step in asked if step > 300]
    assert slow
    assert slow[0] <= 300 + POLL_S / 0.1 + 1
    assert max(_gaps(slow)[1:], default=0) * 0.1 <= POLL_S + 0.2


def test_ranks_exchange_where_a_checkpoint_is_due_by_steps(ranks: RankPool, tmp_path: Path) -> None:
    first, second = ranks.run(2, _asked_by_steps, str(tmp_path))
    assert first == second
    assert {37, 74, 111, 148, 185} <= set(first)


def _watched(watch: LossWatch, losses: list[float], first: int) -> None:
    for number, loss in enumerate(losses, first):
        watch.add(torch.tensor(loss), WatchedStep(torch.tensor([number]), number / 10))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("late", [False, True])
def test_the_first_bad_step_is_named_exactly(bad: float, *, late: bool) -> None:
    watch = LossWatch(late=late)
    _watched(watch, [1.0, 1.0, 1.0], 1)
    assert watch.first_bad_step(3, now=False) == 0
    _watched(watch, [1.0, bad, bad, 1.0], 4)
    assert watch.first_bad_step(7, now=False) == (0 if late else 5)
    if late:
        _watched(watch, [bad], 8)
        assert watch.first_bad_step(8, now=False) == 5
    step, is_bad = watch.what_was(5)
    assert (step.sample_ids.tolist(), step.learning_rate, is_bad) == ([5], 0.5, True)
    assert not watch.what_was(4)[1]


def test_what_is_late_is_read_at_once_before_the_model_is_used() -> None:
    watch = LossWatch(late=True)
    _watched(watch, [1.0, math.nan], 1)
    assert watch.first_bad_step(2, now=False) == 0
    assert watch.first_bad_step(2, now=True) == 2  # as a save follows that was not foreseen
    watch = LossWatch(late=True)
    _watched(watch, [1.0, 1.0], 1)
    assert watch.first_bad_step(2, now=False) == 0
    _watched(watch, [1.0, math.nan], 3)
    assert watch.first_bad_step(4, now=True) == 4
    assert watch.first_bad_step(4, now=True) == 0, "it was returned before"
