"""The acceptance test of a run: its learning, its samples and the changes of its state.

The AUC does not show all errors, such as a fifth of the data missing, rare ids without updates, or an
optimizer without state. So the gate checks every property of a correct run, and lists every violation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.base.arguments import make_config
from trainer.loop.session.opening import open_session
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tests.trainer.support_teacher import Lesson
    from trainer.base.distributed import World
    from trainer.loop.session.session import Session

CURVE = {0.25: 0.85, 0.5: 0.92, 1.0: 0.95}  # of the run's steps, and of the gap that must be closed by then
OFTEN = 100  # rows of ids seen less often need not have moved
SETTINGS: dict[str, Any] = {
    "embedding_dim": 8,
    "dense_arch_layer_sizes": (16, 8),
    "over_arch_layer_sizes": (64, 32, 1),
    "batch_size": 512,
    "num_epochs": 2,
    "learning_rate": 0.1,
    "dense_learning_rate": 0.004,
    "log_interval": 1000,
    "threads": 1,
}

State = dict[str, "npt.NDArray[Any]"]


class Sabotage:
    """A defect of a run; this base class has none."""

    def begin(self, session: Session) -> None:
        """Before the first step."""

    def after_step(self, session: Session) -> None:
        """After every step."""


@dataclass(slots=True)
class Run:
    """The measurements of a finished run, of one rank or of all ranks joined."""

    dataset: str = ""  # the dataset's digest
    samples: str = ""  # the digest of all samples seen
    curve: dict[float, float] = field(default_factory=dict)  # AUC by part of the steps
    states: dict[float, State] = field(default_factory=dict)  # likewise, and at the start (0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a run is accepted, and all reasons if it is not."""

    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons


def learn(world: World, directory: str, sabotage: Sabotage, **settings: Any) -> Run:
    """Train on DIRECTORY/data, on this rank of a world."""
    paths = {"dataset_path": f"{directory}/data", "output_dir": f"{directory}/run"}
    run = Run()
    with open_session(make_config({**SETTINGS, **settings, **paths}), world) as session:
        run.dataset = session.run.dataset.digest
        run.states[0.0] = _copy_state(session)
        sabotage.begin(session)
        looks = {round(part * session.course.total_steps): part for part in CURVE}
        for step in session.steps():
            session.advance(step)
            sabotage.after_step(session)
            if (part := looks.get(session.course.progress.step)) is not None:
                _look(session, run, part)
        if 1.0 not in run.curve:  # it ended early
            _look(session, run, 1.0)
        run.samples = session.course.seen.merge(world.control).hex()
    return run


def join(runs: Sequence[Run]) -> Run:
    """Join the measurements of a run's ranks."""
    whole = runs[0]
    for part, state in whole.states.items():
        for name, array in state.items():
            for other in runs[1:]:
                theirs = other.states[part][name]
                array[~np.isnan(theirs)] = theirs[~np.isnan(theirs)]
    return whole


def gate(lesson: Lesson, run: Run) -> Verdict:
    """Accept a run, or list every reason to refuse it."""
    return Verdict(
        (
            *_judge_data(lesson, run),
            *_judge_curve(lesson, run),
            *_judge_rows(lesson, run),
            *_judge_optimizers(lesson, run),
        )
    )


def _judge_data(lesson: Lesson, run: Run) -> Iterator[str]:
    if run.dataset != lesson.digest:
        yield f"the data is not the lesson's: its digest is {run.dataset[:12]}, not {lesson.digest[:12]}"
    expected = SampleDigest()
    for epoch in range(SETTINGS["num_epochs"]):
        expected.update(epoch, torch.arange(len(lesson.train.labels)))
    if run.samples != expected.hex():
        yield f"it did not see every sample once an epoch: {run.samples}, not {expected.hex()}"


def _judge_curve(lesson: Lesson, run: Run) -> Iterator[str]:
    for part, needed in CURVE.items():
        closed = lesson.gap_closed(run.curve[part]) if part in run.curve else float("nan")
        if not closed >= needed:
            yield f"{closed:.1%} of the gap is closed after {part:.0%} of the steps, not {needed:.0%}"


def _judge_rows(lesson: Lesson, run: Run) -> Iterator[str]:
    """Every row that was trained on often must have moved, from the start to the middle and on."""
    for table, often in _often_seen(lesson).items():
        name = f"tables/{table}/weight"
        for before, after in ((0.0, 0.5), (0.5, 1.0)):
            still = (_at(run, after)[name] == _at(run, before)[name]).all(axis=1) & often
            if still.any():
                yield f"rows {np.flatnonzero(still).tolist()} of {table} stand still after {before:.0%}"


def _judge_optimizers(lesson: Lesson, run: Run) -> Iterator[str]:
    """Sums of squares must grow with every gradient; the dense part's moments must change."""
    for table, often in _often_seen(lesson).items():
        name = f"tables/{table}/rowwise_adagrad"
        for before, after in ((0.0, 0.5), (0.5, 1.0)):
            shrunk = ~(_at(run, after)[name] > _at(run, before)[name]).reshape(len(often)) & often
            if shrunk.any():
                yield f"the sums of {int(shrunk.sum())} rows of {table} do not grow after {before:.0%}"
    for name in _at(run, 1.0):
        if name.startswith("dense_optimizer/"):
            later, earlier = _at(run, 1.0)[name], _at(run, 0.5)[name]
            if not later.any() or (later == earlier).all():
                yield f"{name} does not change"


def _often_seen(lesson: Lesson) -> dict[str, npt.NDArray[np.bool_]]:
    sizes = lesson.num_embeddings
    return {
        table: np.bincount(ids, minlength=sizes[table]) >= OFTEN
        for table, ids in zip(sizes, lesson.train.sparse, strict=True)
    }


def _at(run: Run, part: float) -> State:
    return run.states.get(part, run.states[1.0])


def _look(session: Session, run: Run, part: float) -> None:
    run.curve[part] = session.evaluate()["auc"]
    run.states[part] = _copy_state(session)


def _copy_state(session: Session) -> State:
    """Whole arrays by name; NaN where another rank holds the values."""
    state: Mapping[str, Any] = session.run.learner.state
    copies: State = {}
    for name, entry in state.items():
        copies[name] = np.full(entry.shape, np.nan)
        for shard in entry.shards:
            place = tuple(
                slice(offset, offset + size)
                for offset, size in zip(shard.offsets, shard.tensor.shape, strict=True)
            )
            copies[name][place] = shard.tensor.numpy()
    return copies
