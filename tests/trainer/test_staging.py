from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.support_layers import BACKGROUND, INCREMENTAL, checkpointer, save, trained
from trainer.checkpoint.load.loading import intervals_of
from trainer.checkpoint.save.freezing import Freezer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.checkpoint.save.staging import Staging

_PAUSE_S = 0.2  # memory that is prepared by mistake is there after less than that


def _until_ready(staging: Staging, size: int) -> None:
    deadline = time.monotonic() + 180
    while not staging.is_ready(size):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_arrays_are_adjacent_in_the_prepared_memory_until_it_is_used_up() -> None:
    staging = Staging()
    assert not staging.is_ready(1)
    staging.prepare(1000)
    _until_ready(staging, 1000)
    allocate = staging.allocator()
    one, two, many = allocate((3, 5), np.float32), allocate((7,), np.int64), allocate((9999,), np.uint8)
    one[:], two[:], many[:] = 1, 2, 3
    assert (one == 1).all()
    assert (two == 2).all()
    assert (many == 3).all()
    assert np.shares_memory(staging.allocator()((1250,), np.uint8), one)  # the next cut has the same memory
    assert not np.shares_memory(many, staging.allocator()((1250,), np.uint8))
    assert (one.shape, one.dtype, two.dtype) == ((3, 5), np.float32, np.int64)


def test_memory_grows_with_the_snapshot_plus_a_reserve() -> None:
    staging = Staging()
    staging.prepare(1000)
    _until_ready(staging, 1250)
    staging.prepare(1100)  # fits
    assert staging.is_ready(1250)
    staging.prepare(5000)
    _until_ready(staging, 6250)
    assert not staging.is_ready(6251)


def test_memory_is_reserved_before_the_first_snapshot_within_the_copy_limit(tmp_path: Path) -> None:
    model, staging = trained(1), Staging()
    options = replace(BACKGROUND, mode="incremental", copied_share=0.5)
    with checkpointer(str(tmp_path), options=options) as writer:
        save(writer, model, 1)
    model.train(2)
    full = sum(shard.tensor.nbytes for entry in model.state.values() for shard in entry.shards)
    freezer = Freezer(str(tmp_path), options, rank=0, staging=staging)
    freezer.foresee(model.state)
    _until_ready(staging, 1)
    assert not staging.is_ready(int(full * 0.5 * 1.25) + 1)


def test_the_size_of_the_reserve_is_computed_once() -> None:
    model, staging = trained(1), Staging()
    freezer = Freezer("not written to", replace(BACKGROUND, copied_share=1.0), rank=0, staging=staging)
    for intervals in intervals_of(model.state):
        intervals.begin()
    model.train(2, rows=1)
    freezer.foresee(model.state)
    _until_ready(staging, 1)
    full = sum(shard.tensor.nbytes for entry in model.state.values() for shard in entry.shards)
    model.train(3, rows=1000)
    freezer.foresee(model.state)
    time.sleep(_PAUSE_S)
    assert not staging.is_ready(full)
    fresh = Freezer("not written to", replace(BACKGROUND, copied_share=1.0), rank=0, staging=staging)
    fresh.foresee(model.state)
    _until_ready(staging, full)


@pytest.mark.parametrize("options", [replace(BACKGROUND, mode="full"), INCREMENTAL])
def test_no_memory_is_reserved_if_nothing_will_be_copied(options: SavingOptions) -> None:
    staging = Staging()
    Freezer("not written to", options, rank=0, staging=staging).foresee(trained(1).state)
    time.sleep(_PAUSE_S)
    assert not staging.is_ready(1)
