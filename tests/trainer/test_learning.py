from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.trainer.support_dataset import Rows
from tests.trainer.support_gate import Run, Sabotage, Verdict, gate, join, learn
from tests.trainer.support_learner import make_world
from tests.trainer.support_teacher import SHARD_ROWS, Lesson, make_lesson, write_lesson
from trainer.base.distributed import join_world

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.loop.session.session import Session


@pytest.fixture(scope="module")
def lesson_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lesson")


@pytest.fixture(scope="module")
def lesson(lesson_folder: Path) -> Lesson:
    return make_lesson(lesson_folder / "data", train_rows=5 * SHARD_ROWS, test_rows=30_000)


@pytest.fixture
def directory(lesson: Lesson, lesson_folder: Path, tmp_path: Path) -> Path:
    """A folder for a run, with the lesson's data."""
    assert lesson.bayes_auc - lesson.linear_auc > 0.12
    (tmp_path / "data").symlink_to(lesson_folder / "data")
    return tmp_path


def _learn(directory: Path, sabotage: Sabotage, **settings: Any) -> Run:
    with join_world("cpu") as world:
        return learn(world, str(directory), sabotage, **settings)


def _learn_on_ranks(place: Place, directory: str, sabotage: Sabotage, settings: dict[str, Any]) -> Run:
    return learn(make_world(place), directory, sabotage, **settings)


def _judge(lesson: Lesson, directory: Path, sabotage: Sabotage | None = None) -> Verdict:
    return gate(lesson, _learn(directory, sabotage or Sabotage()))


def _live(session: Session, name: str) -> Tensor:
    return session.run.learner.state[name].shards[0].tensor


def _states(session: Session, start: str) -> list[Tensor]:
    """Live states of optimizers."""
    names = [
        name for name in session.run.learner.state if name.startswith(start) and "weight" not in name[-6:]
    ]
    return [shard.tensor for name in names for shard in session.run.learner.state[name].shards]


class Restored(Sabotage):
    """Every change to some of the live state is taken back after each step."""

    def __init__(self, choose: Callable[[Session], list[Tensor]]) -> None:
        self.choose = choose
        self.kept: list[Tensor] = []

    def begin(self, session: Session) -> None:
        self.kept = [tensor.clone() for tensor in self.choose(session)]

    def after_step(self, session: Session) -> None:
        for tensor, kept in zip(self.choose(session), self.kept, strict=True):
            tensor.copy_(kept)


class Zeroed(Sabotage):
    """Some of the live state is emptied after each step."""

    def __init__(self, choose: Callable[[Session], list[Tensor]]) -> None:
        self.choose = choose

    def after_step(self, session: Session) -> None:
        for tensor in self.choose(session):
            tensor.zero_()


class ZeroedBeforeTheStep(Zeroed):
    """As if the state were created again for every step: the last step's is all that is left."""

    def begin(self, session: Session) -> None:
        super().after_step(session)

    def after_step(self, session: Session) -> None:
        if session.course.progress.step not in (session.course.total_steps, session.course.total_steps // 2):
            super().after_step(session)


class TakenOver(Sabotage):
    """The tables' sums of squares are those of a long past."""

    def begin(self, session: Session) -> None:
        for state in _states(session, "tables/"):
            state.fill_(1e4)


class Dropped(Sabotage):
    """The reader leaves out the last of the data's shards."""

    def begin(self, session: Session) -> None:
        split: Any = session.run.dataset.train
        less = dataclasses.replace(
            split, rows=split.starts[-2], shards=split.shards[:-1], starts=split.starts[:-1]
        )
        splits: dict[str, Any] = session.run.dataset._splits  # type: ignore[attr-defined] # a reader that errs
        splits["train"] = less


def _table(session: Session) -> list[Tensor]:
    return [_live(session, "tables/C1/weight")]


def _second_ranks_part(session: Session) -> list[Tensor]:
    """Of a table cut by rows, what rank 1 holds: rarely seen ids."""
    shards = session.run.learner.state["tables/C2/weight"].shards
    return [shard.tensor for shard in shards if session.run.world.rank == 1]


def _table_states(session: Session) -> list[Tensor]:
    return _states(session, "tables/")


def _dense_states(session: Session) -> list[Tensor]:
    return _states(session, "dense_optimizer/")


def test_a_sound_run_passes(lesson: Lesson, directory: Path) -> None:
    assert _judge(lesson, directory).reasons == ()


@pytest.mark.soak
def test_a_table_shard_that_is_never_updated_fails(worlds: Worlds, lesson: Lesson, directory: Path) -> None:
    settings = {"sharding_types": ["row_wise"], "batch_size": 256}
    runs = worlds.run(2, _learn_on_ranks, str(directory), Restored(_second_ranks_part), settings)
    reasons = gate(lesson, join(runs)).reasons
    assert f"rows {list(range(20, 40))} of C2 stand still after 0%" in reasons
    assert all("of C2 stand" in reason or "of the gap" in reason for reason in reasons)  # the rest is sound


def test_a_frozen_table_fails(lesson: Lesson, directory: Path) -> None:
    reasons = _judge(lesson, directory, Restored(_table)).reasons
    assert any("of the gap is closed after 100%" in reason for reason in reasons)
    assert any("of C1 stand still" in reason for reason in reasons)


def test_an_unread_data_shard_fails(lesson: Lesson, directory: Path) -> None:
    reasons = _judge(lesson, directory, Dropped()).reasons
    assert any("it did not see every sample once an epoch" in reason for reason in reasons)


def test_a_missing_data_shard_fails(lesson: Lesson, tmp_path: Path) -> None:
    few, train = slice(0, 4 * SHARD_ROWS), lesson.train
    write_lesson(
        tmp_path / "data", Rows(train.labels[few], train.dense[few], train.sparse[:, few]), lesson.test
    )
    reasons = _judge(lesson, tmp_path).reasons
    assert any("the data is not the lesson's" in reason for reason in reasons)
    assert any("it did not see every sample once an epoch" in reason for reason in reasons)


def test_shuffled_labels_fail(lesson: Lesson, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).permutation(lesson.train.labels)
    write_lesson(tmp_path / "data", dataclasses.replace(lesson.train, labels=labels), lesson.test)
    reasons = _judge(lesson, tmp_path).reasons
    assert any("of the gap is closed after 100%" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("sabotage", "reason"),
    [
        (TakenOver(), "of the gap is closed after 100%"),
        (Restored(_table_states), "rows of C1 do not grow"),
        pytest.param(Zeroed(_table_states), "rows of C1 do not grow", marks=pytest.mark.soak),
        (ZeroedBeforeTheStep(_table_states), "rows of C1 do not grow after 50%"),
        (Restored(_dense_states), "does not change"),
        pytest.param(Zeroed(_dense_states), "does not change", marks=pytest.mark.soak),
    ],
    ids=["of another run", "frozen", "zeroed", "created again", "dense frozen", "dense zeroed"],
)
def test_stale_optimizer_state_fails(
    lesson: Lesson, directory: Path, sabotage: Sabotage, reason: str
) -> None:
    reasons = _judge(lesson, directory, sabotage).reasons
    assert any(reason in found for found in reasons), reasons


@pytest.mark.soak
def test_bf16_learns_as_well_as_fp32(directory: Path) -> None:
    for seed in range(3):
        aucs = []
        for precision in ("fp32", "bf16"):
            aucs.append(_learn(directory, Sabotage(), precision=precision, seed=seed).curve[1.0])
            shutil.rmtree(directory / "run")
        assert aucs[1] == pytest.approx(aucs[0], abs=0.001)
