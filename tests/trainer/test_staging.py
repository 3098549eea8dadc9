from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.trainer.support_layers import BACKGROUND, checkpointer, save, trained
from trainer.checkpoint.staging import Staging


def _until_ready(staging: Staging, size: int) -> None:
    deadline = time.monotonic() + 180
    while not staging.is_ready(size):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_arrays_lie_in_the_prepared_memory_side_by_side_and_fresh_ones_come_when_it_is_used_up() -> None:
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


def test_memory_grows_with_the_cut_and_holds_some_more() -> None:
    staging = Staging()
    staging.prepare(1000)
    _until_ready(staging, 1250)
    staging.prepare(1100)  # fits
    assert staging.is_ready(1250)
    staging.prepare(5000)
    _until_ready(staging, 6250)
    assert not staging.is_ready(6251)


def test_what_is_foreseen_is_there_at_the_first_cut_and_never_more_than_may_be_copied(tmp_path: Path) -> None:
    model = trained(1)
    options = replace(BACKGROUND, mode="incremental", copied_share=0.5)
    with checkpointer(str(tmp_path), options=options) as writer:
        save(writer, model, 1)
        model.train(2)
        state = model.state
        writer.foresee(state)
        full = sum(shard.tensor.nbytes for entry in state.values() for shard in entry.shards)
        _until_ready(writer._staging, 1)
        assert not writer._staging.is_ready(int(full * 0.5 * 1.25) + 1)
        writer._staging = Staging()
        writer.foresee(state)  # once is enough: it looks through all stamps
        assert not writer._staging.is_ready(1)
