"""The course of a run and its remaining batches, without a model or a checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from trainer.base.arguments import make_config
from trainer.data.checks import BatchChecks
from trainer.data.device.checks import DeviceChecks
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


def _feed(
    config: TrainerConfig,
    source: SampleSource,
    rank: int,
    rows: int = 50,
    *,
    device: torch.device | None = None,
    wraps: bool = False,
) -> BatchFeed:
    checks = BatchChecks(source, dict.fromkeys(source.num_embeddings, rows), hash_overflow=wraps)
    return BatchFeed(config, source, checks, rank=rank, ranks=2, device=device)


def _train(course: Course, feed: BatchFeed, most: int | None = None) -> int:
    """Count the steps that are left, or so many; how many these are."""
    count = course.left if most is None else most
    before = course.progress.step
    for batch in feed.batches(course.progress, count):
        course.see(batch)
        course.advance(batch, 0.5)
    return course.progress.step - before


@pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["cpu", "device"])
def test_an_interrupted_course_sees_the_samples_of_an_uninterrupted_one(
    config: TrainerConfig, source: SampleSource, device: torch.device | None
) -> None:
    everything = SampleDigest()
    for epoch in range(2):
        everything.update(epoch, torch.arange(ROWS))
    seen = SampleDigest()
    for rank in range(2):
        feed = _feed(config, source, rank, device=device)
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


def test_a_bad_batch_of_a_device_is_reported_as_that_of_the_cpu_when_the_ranks_agree(
    config: TrainerConfig, source: SampleSource
) -> None:
    source.checked = False
    progress = Progress(step=4, position=80, samples=80)
    with pytest.raises(BadBatchError) as of_the_cpu:
        list(_feed(config, source, 0, rows=2).batches(progress, 3))
    feed = _feed(config, source, 0, rows=2, device=torch.device("cpu"))
    batches = list(feed.batches(progress, 3))  # read ahead of the steps
    assert all(0 <= int(batch.sparse.min()) <= int(batch.sparse.max()) < 2 for batch in batches)
    feed.confirm(4, now=True)
    feed.confirm(5, now=False)  # is asked for, and read by the next call
    with pytest.raises(BadBatchError) as of_the_device:
        feed.confirm(6, now=False)
    assert str(of_the_device.value) == str(of_the_cpu.value)


def test_good_batches_of_a_device_are_confirmed(config: TrainerConfig, source: SampleSource) -> None:
    source.checked = False
    feed = _feed(config, source, 0, device=torch.device("cpu"))
    expected = list(_feed(config, source, 0).batches(Progress(), 12))
    for step, (batch, same) in enumerate(zip(feed.batches(Progress(), 12), expected, strict=True), 1):
        feed.confirm(step, now=step % 3 == 0)
        assert torch.equal(batch.sparse, same.sparse)
        assert torch.equal(batch.dense, same.dense)


def test_a_fault_of_the_device_is_reported_as_one(
    config: TrainerConfig, source: SampleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.checked = False
    feed = _feed(config, source, 0, rows=2, device=torch.device("cpu"))
    list(feed.batches(Progress(), 1))
    monkeypatch.setattr(feed, "_checks", lambda batch: batch)
    with pytest.raises(BadBatchError, match=r"step 1: cpu found .* but not when .*its batch: samples \d+, "):
        feed.confirm(1, now=True)


def test_ids_on_a_device_are_taken_modulo_the_rows_as_on_the_cpu(
    config: TrainerConfig, source: SampleSource
) -> None:
    source.checked = False
    ours = _feed(config, source, 1, rows=7, device=torch.device("cpu"), wraps=True).batches(Progress(), 12)
    theirs = _feed(config, source, 1, rows=7, wraps=True).batches(Progress(), 12)
    for batch, same in zip(ours, theirs, strict=True):
        assert torch.equal(batch.sparse, same.sparse)


def test_what_was_found_in_a_stream_on_a_device_is_known_at_its_end(source: SampleSource) -> None:
    source.checked = False
    batches = list(source.batches("test", batch_size=6, rank=0, world_size=1))
    found = {}
    for rows in (2, 50):
        checks = BatchChecks(source, dict.fromkeys(source.num_embeddings, rows), hash_overflow=False)
        on_device = DeviceChecks(checks, torch.device("cpu"))
        cleaned = list(on_device.stream(batches))
        assert max(int(batch.sparse.max()) for batch in cleaned) < rows
        found[rows] = on_device.has_failed()
    assert found == {2: True, 50: False}
