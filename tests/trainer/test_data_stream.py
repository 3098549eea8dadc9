from __future__ import annotations

import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainer.support_dataset import Rows, write_dataset
from trainer.base.errors import DatasetError
from trainer.data.formats.prepared import PreparedDataset, Split
from trainer.data.formats.synthetic import SyntheticStream
from trainer.data.order import EpochOrder, permutation
from trainer.data.prefetch import Prefetcher
from trainer.data.stream import BatchStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainer.data.batch import Batch

ROWS = 1000
SMALL: dict[str, Any] = {"block_rows": 64, "window_blocks": 3}  # so that few rows make several windows


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Split, Rows]:
    directory = tmp_path_factory.mktemp("data")
    rows = write_dataset(directory, train_rows=ROWS, test_rows=0, num_sparse=5, num_dense=3, shard_rows=301)
    return PreparedDataset.open(str(directory), verify=True).train, rows["train"]


def _steps(split: Split, world_size: int, **settings: Any) -> list[list[Batch]]:
    """Every global step as the batches of all ranks."""
    options = {"seed": 1, "epoch": 0, "batch_size": 10, **SMALL, **settings}
    streams = [
        list(BatchStream(split, rank=rank, world_size=world_size, **options)) for rank in range(world_size)
    ]
    return [list(step) for step in zip(*streams, strict=True)]


def _ids(steps: list[list[Batch]]) -> list[int]:
    return [int(sample) for step in steps for batch in step for sample in batch.sample_ids]


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    world_size=st.integers(1, 7),
    batch_size=st.integers(1, 400),
    start=st.integers(0, ROWS),
    epoch=st.integers(0, 5),
    shuffle=st.booleans(),
)
def test_every_sample_comes_once_in_an_order_independent_of_world_and_batch_size(
    written: tuple[Split, Rows], world_size: int, batch_size: int, start: int, epoch: int, *, shuffle: bool
) -> None:
    split, _ = written
    one_by_one = _ids(_steps(split, 1, batch_size=97, epoch=epoch, shuffle=shuffle))
    assert sorted(one_by_one) == list(range(ROWS))
    steps = _steps(split, world_size, batch_size=batch_size, epoch=epoch, shuffle=shuffle, start_sample=start)
    assert _ids(steps) == one_by_one[start:]
    for step in steps:
        sizes = [len(batch) for batch in step]
        assert max(sizes) - min(sizes) <= 1
        assert {batch.global_size for batch in step} == {sum(sizes)}
    full = [step for step in steps[:-1] for batch in step if len(batch) != batch_size]
    assert not full, "only the last step of an epoch has less than the batch size"


def test_a_run_that_changes_its_world_size_sees_every_sample_once(written: tuple[Split, Rows]) -> None:
    split, _ = written
    seen: list[int] = []
    for world_size, batch_size, steps in ((2, 30, 3), (3, 7, 10), (1, 64, 4), (4, 25, 100)):
        seen += _ids(_steps(split, world_size, batch_size=batch_size, start_sample=len(seen))[:steps])
    assert sorted(seen) == list(range(ROWS))
    assert seen == _ids(_steps(split, 1))


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_comes_with_its_own_features_and_label(
    written: tuple[Split, Rows], *, shuffle: bool
) -> None:
    split, rows = written
    for batch in BatchStream(
        split, batch_size=77, rank=0, world_size=1, seed=3, epoch=2, shuffle=shuffle, **SMALL
    ):
        ids = batch.sample_ids.numpy()
        np.testing.assert_array_equal(batch.dense.numpy(), rows.dense[ids])
        np.testing.assert_array_equal(batch.sparse.numpy(), rows.sparse[:, ids])
        np.testing.assert_array_equal(batch.labels.numpy(), rows.labels[ids].astype(np.float32))
        types = (batch.dense.dtype, batch.sparse.dtype, batch.labels.dtype, batch.sample_ids.dtype)
        assert types == (torch.float32, torch.int32, torch.float32, torch.int64)
        assert batch.sparse.is_contiguous()


def test_without_shuffling_rows_are_in_file_order(written: tuple[Split, Rows]) -> None:
    assert _ids(_steps(written[0], 2, shuffle=False)) == list(range(ROWS))


def test_each_seed_and_each_epoch_has_its_own_order(written: tuple[Split, Rows]) -> None:
    orders = {
        tuple(_ids(_steps(written[0], 1, seed=seed, epoch=epoch))) for seed in (1, 2) for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_with_more_ranks_than_samples_some_ranks_have_none(written: tuple[Split, Rows]) -> None:
    (step,) = _steps(written[0], 5, start_sample=ROWS - 2)
    assert sorted(len(batch) for batch in step) == [0, 0, 0, 1, 1]
    assert {batch.global_size for batch in step} == {2}


def test_the_length_is_the_number_of_remaining_steps(written: tuple[Split, Rows]) -> None:
    for start, expected in ((0, 17), (40, 16), (41, 16), (ROWS - 1, 1), (ROWS, 0)):
        stream = BatchStream(
            written[0], batch_size=30, rank=1, world_size=2, seed=0, epoch=0, start_sample=start
        )
        assert len(stream) == len(list(stream)) == expected


def test_a_position_beyond_the_data_is_refused(written: tuple[Split, Rows]) -> None:
    with pytest.raises(DatasetError, match="has 1000 rows, so no position 1001"):
        BatchStream(written[0], batch_size=1, rank=0, world_size=1, seed=0, epoch=0, start_sample=1001)


def test_batches_keep_their_contents_while_later_ones_are_read(written: tuple[Split, Rows]) -> None:
    split, rows = written
    stream = BatchStream(split, batch_size=50, rank=0, world_size=1, seed=3, epoch=0, **SMALL)
    for batch in list(stream):  # all held at once
        np.testing.assert_array_equal(batch.dense.numpy(), rows.dense[batch.sample_ids.numpy()])


def test_a_batch_mixes_distant_rows() -> None:
    order = EpochOrder(1_000_000, seed=0, epoch=0)
    blocks = {(block.start // 16_384) for block in order.blocks(0)}
    assert max(blocks) - min(blocks) > 16, "a window's blocks come from all over the dataset"
    first_batch = order.shuffle(0)[:1024] // 16_384
    assert (np.bincount(first_batch, minlength=8) > 64).all(), "and every batch draws on all of them"


def test_the_order_never_changes_between_versions() -> None:
    # golden values: a checkpoint's position means nothing once the order behind it changes
    assert permutation(10, 42).tolist() == [3, 2, 9, 5, 8, 1, 4, 0, 7, 6]
    order = EpochOrder(100, seed=7, epoch=3, block_rows=10, window_blocks=4)
    assert [[block.start for block in order.blocks(window)] for window in range(3)] == [
        [10, 80, 20, 60],
        [0, 70, 90, 30],
        [40, 50],
    ]
    assert order.shuffle(2).tolist() == [
        15,
        12,
        16,
        17,
        1,
        11,
        3,
        13,
        2,
        18,
        19,
        6,
        8,
        7,
        14,
        4,
        0,
        5,
        10,
        9,
    ]


def test_permutations_are_uniformly_distributed() -> None:
    counts = np.zeros((6, 6))
    for key in range(3000):
        counts[np.arange(6), permutation(6, key)] += 1
    assert abs(counts / 500 - 1).max() < 0.2  # four standard deviations


def test_memory_is_bounded_by_one_window(tmp_path: Path) -> None:
    write_dataset(tmp_path, train_rows=60_000, test_rows=0, shard_rows=20_000)
    split = PreparedDataset.open(str(tmp_path), verify=False).train
    stream = BatchStream(
        split, batch_size=100, rank=0, world_size=1, seed=0, epoch=0, block_rows=500, window_blocks=4
    )
    tracemalloc.start()
    try:
        assert sum(len(batch) for batch in stream) == 60_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 2000 * (26 * 4 + 13 * 4 + 4 + 8 + 8), "the whole split would be ten times that"


def test_prefetching_yields_the_same_items() -> None:
    with Prefetcher(range(100), depth=3) as items:
        assert list(items) == list(range(100))


@pytest.mark.parametrize("serial", [False, True])
def test_a_serial_prefetch_thread_alone_is_limited_to_one_core(*, serial: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with Prefetcher((torch.get_num_threads() for _ in range(1)), serial=serial) as items:
            assert list(items) == [1 if serial else 3]
            with Prefetcher(torch.get_num_threads() for _ in range(1)) as later:
                assert list(later) == [3]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_prefetch_error_is_raised_in_place_of_its_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise DatasetError("gone")

    with Prefetcher(items()) as ahead:
        iterator = iter(ahead)
        assert next(iterator) == 1
        with pytest.raises(DatasetError, match="gone"):
            next(iterator)


def test_an_early_exit_ends_the_prefetch_thread() -> None:
    with Prefetcher(iter(int, 1), depth=1) as items:
        assert next(iter(items)) == 0
    assert all(thread.name != "prefetch" for thread in threading.enumerate())


@pytest.mark.parametrize("zipf", [False, True])
def test_synthetic_batches_are_endless_in_range_and_reproducible(*, zipf: bool) -> None:
    def first_five() -> list[Batch]:
        stream = iter(SyntheticStream(3, [10, 2000], 64, 5, 2, zipf=zipf))
        return [next(stream) for _ in range(5)]

    batches = first_five()
    for batch, again in zip(batches, first_five(), strict=True):
        assert torch.equal(batch.sparse, again.sparse)
        assert (tuple(batch.dense.shape), tuple(batch.sparse.shape), batch.global_size) == (
            (64, 3),
            (2, 64),
            64,
        )
        assert int(batch.sparse.min()) >= 0
        assert int(batch.sparse[0].max()) < 10
        assert int(batch.sparse[1].max()) < 2000
