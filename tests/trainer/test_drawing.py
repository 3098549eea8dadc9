"""The initial tables: equal bits for every plan, uniform, and those of earlier versions again."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import stats

from trainer.base.row_stamps import Intervals, RowStamps
from trainer.checkpoint import Checkpointer, Entry, TensorShard
from trainer.checkpoint.save.saves import SavingOptions
from trainer.sharding.drawing import NEWEST, VERSIONS, draw
from trainer.sharding.state import InitialTables

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint import State

SHAPE = (40_000, 24)


def _drawn(
    offsets: tuple[int, int] = (0, 0),
    size: tuple[int, int] = SHAPE,
    *,
    version: int = NEWEST,
    seed: int = 3,
    table: str = "C1",
    shape: tuple[int, int] = SHAPE,
    dtype: torch.dtype = torch.float32,
    scale: float = 0.5,
) -> torch.Tensor:
    target = torch.full(size, math.nan, dtype=dtype)
    draw(target, version=version, seed=seed, table=table, shape=shape, offsets=offsets, scale=scale)
    return target


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("offsets", "size"),
    [((0, 0), (1, 24)), ((1, 0), (1, 24)), ((16_380, 3), (9, 5)), ((39_999, 23), (1, 1)), ((7, 0), (0, 24))],
)
def test_a_rectangle_has_the_values_of_the_whole_table(
    version: int, offsets: tuple[int, int], size: tuple[int, int]
) -> None:
    whole = _drawn(version=version)
    (top, left), (rows, columns) = offsets, size
    assert torch.equal(_drawn(offsets, size, version=version), whole[top : top + rows, left : left + columns])


def test_rows_are_drawn_equally_in_small_and_in_large_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _drawn()
    monkeypatch.setattr("trainer.sharding.drawing._DRAWN", 100)
    assert torch.equal(_drawn((0, 0), (500, 24)), whole[:500])


def test_the_bits_stay_the_same_in_later_versions_of_the_trainer() -> None:
    checksums = {version: zlib.crc32(_drawn(version=version).numpy()) for version in VERSIONS}
    assert checksums == {1: 2025361241, 2: 4250141793}


def test_values_are_uniform_within_the_bound_and_depend_on_seed_table_row_and_column() -> None:
    values = _drawn().double().numpy() * math.sqrt(SHAPE[0]) / 0.5
    assert -1 < values.min() < -0.9999
    assert 0.9999 < values.max() < 1
    assert abs(values.mean()) < 4 / math.sqrt(3 * values.size)
    assert values.var() == pytest.approx(1 / 3, rel=0.005)
    assert stats.kstest(values.reshape(-1), "uniform", (-1, 2)).pvalue > 0.001
    rows = np.corrcoef(values[:1000])[np.triu_indices(1000, 1)]
    assert np.abs(rows).max() < 6 / math.sqrt(SHAPE[1])
    assert rows.std() == pytest.approx(1 / math.sqrt(SHAPE[1] - 1), rel=0.02)
    columns = np.corrcoef(values.T)[np.triu_indices(SHAPE[1], 1)]
    assert np.abs(columns).max() < 5 / math.sqrt(SHAPE[0])
    for other in (_drawn(seed=4), _drawn(table="C2")):
        both = np.corrcoef(values.reshape(-1), other.numpy().reshape(-1))[0, 1]
        assert abs(both) < 5 / math.sqrt(values.size)


def test_each_bit_of_a_number_is_set_as_often_as_not() -> None:
    values = _drawn(scale=math.sqrt(SHAPE[0])).double().numpy()  # within +-1
    numbers = np.rint(values * (1 << 24)).astype(np.int64)
    assert (numbers & 1).all()
    for bit in range(1, 25):
        share = ((numbers >> bit) & 1).mean()
        assert abs(share - 0.5) < 4 / (2 * math.sqrt(numbers.size)), bit


def test_half_precision_tables_have_the_rounded_values() -> None:
    assert torch.equal(_drawn(dtype=torch.float16), _drawn().half())


def _initial(version: int) -> tuple[State, InitialTables]:
    tensor = torch.zeros(SHAPE)
    entry = Entry(SHAPE, (TensorShard(tensor, (0, 0)),))
    return {"tables/C1/weight": entry}, InitialTables({"C1": entry}, (), seed=3, scale=0.5, version=version)


def test_an_initial_state_is_found_by_the_identity_that_a_checkpoint_names() -> None:
    identities = {version: _initial(version)[1].identity for version in VERSIONS}
    assert len(set(identities.values())) == len(VERSIONS)
    assert identities[1] == "uniform/seed=3/scale=0.5/crc32=89d9232c"
    _, newest = _initial(NEWEST)
    for version, identity in identities.items():
        found = newest.known_as(identity)
        assert found is not None
        assert found.identity == identity, version
    assert newest.known_as("uniform-3/seed=3/scale=0.5/crc32=00000000") is None
    assert newest.known_as(identities[2].replace("seed=3", "seed=4")) is None


def test_a_checkpoint_of_an_earlier_version_is_restored_and_keeps_its_initial_state(
    tmp_path: Path,
) -> None:
    intervals = Intervals()
    stamps = RowStamps(intervals.add(SHAPE[0], torch.device("cpu")), intervals)
    options = SavingOptions(mode="incremental")

    def stamped(version: int) -> tuple[State, InitialTables, torch.Tensor]:
        state, initial = _initial(version)
        (shard,) = state["tables/C1/weight"].shards
        entry = Entry(SHAPE, (replace(shard, stamps=stamps),))
        return {"tables/C1/weight": entry}, initial, shard.tensor

    state, old, trained = stamped(1)
    old.make()
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options) as writer:
        trained[5] = 1
        stamps.touch(torch.tensor([5]))
        writer.save(1, state, {}, {}, initial=old)
    state, newest, resumed = stamped(NEWEST)
    newest.make()
    assert not torch.equal(resumed, trained)
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options) as writer:
        assert writer.load_newest(state, initial=newest) == (1, {})
        assert torch.equal(resumed, trained)
        resumed[77] = 2
        stamps.touch(torch.tensor([77]))
        report = writer.save(2, state, {}, {}, initial=newest)
        assert report is not None
        assert report.bytes < trained.nbytes // 10  # a differential above the old initial state
    state, newest, again = stamped(NEWEST)
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options) as writer:
        writer.load_newest(state, initial=newest)
    assert torch.equal(again, resumed)
