from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch

from tests.trainer.support_learner import make_batches, make_learner
from trainer.base.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.data.batch import Batch

SIZES = [32, 32, 32, 7]


def _losses(place: Place, ahead: int, pipeline: str) -> list[float]:
    learner = make_learner(place, read_ahead=ahead, pipeline=pipeline, seed=3)
    return [float(step.loss) for step in learner.pipeline.steps(make_batches(place, SIZES), 0)]


def _drawn_at_each_step(place: Place, ahead: int) -> list[int]:
    """How many batches were drawn by the time that each step was done, given time to draw more."""
    drawn: list[int] = []
    enough = threading.Event()

    def counted() -> Iterator[Batch]:
        for batch in make_batches(place, SIZES):
            drawn.append(1)
            if len(drawn) == len(SIZES):
                enough.set()
            yield batch

    learner = make_learner(place, read_ahead=ahead)
    counts = []
    for _ in learner.pipeline.steps(counted(), 0):
        if ahead:
            enough.wait(timeout=180)
        counts.append(len(drawn))
    return counts


def _cores_of_readers(place: Place) -> dict[str, set[int]]:
    """The cores that torch's operations use where batches are read, and afterwards in the step's thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    learner = make_learner(place, read_ahead=2)
    found: dict[str, set[int]] = {"training": set(), "scoring": set()}

    def counted(kind: str) -> Iterator[Batch]:
        for batch in make_batches(place, SIZES):
            found[kind].add(torch.get_num_threads())
            yield batch

    steps = {torch.get_num_threads() for _ in learner.pipeline.steps(counted("training"), 0)}
    steps |= {torch.get_num_threads() for _ in learner.score(counted("scoring"))}
    torch.set_num_threads(before)  # other tests use this process
    return {**found, "steps": steps}


def _threads_left(place: Place) -> list[str]:
    learner = make_learner(place, read_ahead=2)
    steps = learner.pipeline.steps(make_batches(place, [16] * 50), 0)
    next(steps)
    steps.close()  # type: ignore[attr-defined] # a generator, as every stopped run leaves it
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def _error_after(place: Place) -> tuple[int, str]:
    def failing() -> Iterator[Batch]:
        yield from make_batches(place, [16] * 3)
        raise DatasetError("row 48 is torn")

    done = 0
    try:
        for _ in make_learner(place, read_ahead=3).pipeline.steps(failing(), 0):
            done += 1
    except DatasetError as error:
        return done, str(error)
    return done, "no error"


@pytest.mark.parametrize("pipeline", ["plain", "sparse_dist"])
def test_prefetching_does_not_change_the_losses(worlds: Worlds, pipeline: str) -> None:
    assert worlds.run(1, _losses, 2, pipeline) == worlds.run(1, _losses, 0, pipeline)


def test_batches_are_read_during_steps(worlds: Worlds) -> None:
    assert worlds.run(1, _drawn_at_each_step, 4)[0][0] == len(SIZES)
    assert worlds.run(1, _drawn_at_each_step, 0)[0] == [1, 2, 3, 4]


def test_on_a_cpu_a_reader_uses_one_core_and_the_steps_use_all(worlds: Worlds) -> None:
    assert worlds.run(1, _cores_of_readers) == [{"training": {1}, "scoring": {1}, "steps": {3}}]


def test_a_run_that_ends_early_leaves_no_reader_thread(worlds: Worlds) -> None:
    assert worlds.run(1, _threads_left) == [[]]


def test_a_reader_error_is_raised_at_its_step(worlds: Worlds) -> None:
    assert worlds.run(1, _error_after) == [(3, "row 48 is torn")]
