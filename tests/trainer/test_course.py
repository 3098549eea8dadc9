"""The course of a run and its remaining batches, without a model or a checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from trainer.base.arguments import make_config
from trainer.data.checks import BatchChecks
from trainer.data.formats.open import open_source
from trainer.loop.progress import Progress
from trainer.loop.session.course import Course
from trainer.loop.session.feed import BadBatchError, BatchFeed
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from trainer.base.config import TrainerConfig
    from trainer.data.source import SampleSource

ROWS = 103


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainerConfig:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=ROWS, test_rows=20, num_dense=3, num_sparse=4)
    return make_config({"dataset_path": str(path), "batch_size": 10, "num_epochs": 2, "seed": 5})


@pytest.fixture
def source(config: TrainerConfig) -> SampleSource:
    return open_source(config)


def _course(config: TrainerConfig, progress: Progress, seen: SampleDigest | None = None) -> Course:
    return Course(config, progress, seen, rows=ROWS, ranks=2, started=time.perf_counter())


def _feed(config: TrainerConfig, source: SampleSource, rank: int, rows: int = 50) -> BatchFeed:
    checks = BatchChecks(source, dict.fromkeys(source.num_embeddings, rows), hash_overflow=False)
    return BatchFeed(config, source, checks, rank=rank, ranks=2)


def _train(course: Course, feed: BatchFeed, most: int | None = None) -> int:
    """Count the steps that are left, or so many; how many these are."""
    count = course.left if most is None else most
    before = course.progress.step
    for batch in feed.batches(course.progress, count):
        course.see(batch)
        course.advance(batch, 0.5)
    return course.progress.step - before


def test_an_interrupted_course_sees_the_samples_of_an_uninterrupted_one(
    config: TrainerConfig, source: SampleSource
) -> None:
    everything = SampleDigest()
    for epoch in range(2):
        everything.update(epoch, torch.arange(ROWS))
    seen = SampleDigest()
    for rank in range(2):
        feed = _feed(config, source, rank)
        whole = _course(config, Progress())
        assert _train(whole, feed) == whole.total_steps == 12
        assert whole.is_over
        first = _course(config, Progress())
        assert (_train(first, feed, most=7), first.is_over) == (7, False)
        second = _course(config, first.progress, first.seen)
        assert (second.done, second.left, second.total_steps) == (7, 5, 12)
        assert _train(second, feed) == 5
        assert second.is_over
        assert second.seen.state() == whole.seen.state()
        assert (second.progress.epoch, second.progress.position, second.progress.samples) == (2, 0, 2 * ROWS)
        assert second.progress.productive_s == pytest.approx(6.0)
        _train(_course(config, Progress(), seen), feed)
    assert seen.hex() == everything.hex()


def test_an_interval_is_counted_from_the_first_step_of_the_run(config: TrainerConfig) -> None:
    course = _course(config, Progress(step=6))
    assert [interval for interval in range(8) if course.is_due(interval)] == [1, 2, 3, 6]


def test_the_rate_of_an_attempt_excludes_earlier_attempts(config: TrainerConfig) -> None:
    course = _course(config, Progress(step=6, samples=1000, productive_s=1.0, training_s=50.0))
    course.progress.samples, course.progress.productive_s = 1200, 3.0
    assert course.clock.samples_per_s(course.progress) == pytest.approx(100.0)
    course.clock.begin_steps()
    assert 50.0 <= course.clock.training_s < 60.0


def test_a_bad_batch_is_reported_with_its_step_when_it_is_read(
    config: TrainerConfig, source: SampleSource
) -> None:
    source.checked = False
    progress = Progress(step=4, position=80, samples=80)
    with pytest.raises(
        BadBatchError, match=r"step 5: C\d of sample \d+ holds the id \d+; .*its batch: samples \d+, "
    ):
        list(_feed(config, source, 0, rows=2).batches(progress, 3))
    assert list(_feed(config, source, 0, rows=2).batches(progress, 0)) == []
