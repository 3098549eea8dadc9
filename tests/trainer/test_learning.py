from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.trainer.support_dataset import Rows
from tests.trainer.support_teacher import SHARD_ROWS, Lesson, make_lesson
from trainer.arguments import make_config
from trainer.distributed import join_world
from trainer.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from trainer.session import Session

GATE = 0.95  # of the gap between the best linear model and the best possible one
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


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return make_lesson(train_rows=5 * SHARD_ROWS, test_rows=30_000)


def _leave_alone(_: Session) -> None:
    """Train as it is."""


def _learn(
    lesson: Lesson,
    directory: Path,
    before: Callable[[Session], None] = _leave_alone,
    after_step: Callable[[Session], None] = _leave_alone,
    **settings: Any,
) -> float:
    """Train with something done to the live state; how much of the gap was closed."""
    lesson.write(directory / "data")
    paths = {"dataset_path": str(directory / "data"), "output_dir": str(directory / "run")}
    config = make_config({**SETTINGS, **settings, **paths})
    with join_world("cpu") as world, open_session(config, world) as session:
        before(session)
        for step in session.steps():
            session.advance(step)
            after_step(session)
        return lesson.gap_closed(session.evaluate()["auc"])


def _live(session: Session, name: str) -> Tensor:
    return session.learner.state[name].shards[0].tensor


def test_the_trainer_closes_the_gap_between_linear_and_bayes(lesson: Lesson, tmp_path: Path) -> None:
    assert lesson.bayes_auc - lesson.linear_auc > 0.12
    assert _learn(lesson, tmp_path) >= GATE


def test_a_frozen_table_fails_the_gate(lesson: Lesson, tmp_path: Path) -> None:
    kept: list[Tensor] = []
    closed = _learn(
        lesson,
        tmp_path,
        before=lambda session: kept.append(_live(session, "tables/C1/weight").clone()),
        after_step=lambda session: _live(session, "tables/C1/weight").copy_(kept[0]),
    )
    assert closed < GATE


def test_a_lost_shard_of_a_table_fails_the_gate(lesson: Lesson, tmp_path: Path) -> None:
    def lose(session: Session) -> None:
        _live(session, "tables/C2/weight")[: 40 // 4].zero_()

    assert _learn(lesson, tmp_path, after_step=lose) < GATE


def test_dropping_all_but_one_shard_of_the_data_fails_the_gate(lesson: Lesson, tmp_path: Path) -> None:
    few = slice(0, SHARD_ROWS)
    train = Rows(lesson.train.labels[few], lesson.train.dense[few], lesson.train.sparse[:, few])
    less = Lesson(train, lesson.test, lesson.bayes_auc, lesson.linear_auc)
    assert _learn(less, tmp_path) < GATE


def test_shuffled_labels_fail_the_gate(lesson: Lesson, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).permutation(lesson.train.labels)
    train = Rows(labels, lesson.train.dense, lesson.train.sparse)
    wrong = Lesson(train, lesson.test, lesson.bayes_auc, lesson.linear_auc)
    assert _learn(wrong, tmp_path) < GATE


def test_the_optimizer_state_of_another_run_fails_the_gate(lesson: Lesson, tmp_path: Path) -> None:
    def take_over(session: Session) -> None:
        for name in session.learner.state:
            if name.startswith("tables/") and not name.endswith("/weight"):
                _live(session, name).fill_(1e4)  # the sums of squares of a long past

    assert _learn(lesson, tmp_path, before=take_over) < GATE


@pytest.mark.soak
def test_bf16_learns_as_well_as_fp32(lesson: Lesson, tmp_path: Path) -> None:
    span = lesson.bayes_auc - lesson.linear_auc
    for seed in range(3):
        closed = [
            _learn(lesson, tmp_path / f"{precision}-{seed}", precision=precision, seed=seed)
            for precision in ("fp32", "bf16")
        ]
        assert abs(closed[0] - closed[1]) * span <= 0.001
