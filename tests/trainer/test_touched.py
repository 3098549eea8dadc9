from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.trainer.support_learner import make_batches, make_learner
from trainer.base.row_stamps import Intervals, RowStamps
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.sharding.digest import model_digest
from trainer.tables.touched import _Stamp

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.loop.learner import Learner

SIZES = [24] * 4
PLANS: list[dict[str, Any]] = [
    {},
    {"table_kernel": "fbgemm"},
    {"table_kernel": "torch"},
    {"sharding_types": ["table_wise"]},
    {"sharding_types": ["row_wise"]},
    {"sharding_types": ["column_wise"], "table_optimizer": "adagrad"},
    {"data_parallel": True},
    {"pipeline": "sparse_dist", "sharding_types": ["row_wise"]},
    {"table_optimizer": "adam"},
    {"embedding_weight_precision": "fp16"},
]


def _count(place: Place, settings: dict[str, Any]) -> tuple[bool, int, int]:
    """Whether every row that changed is stamped; rows stamped, and rows in all."""
    learner = make_learner(place, **settings)
    before = _copies(learner)
    list(learner.pipeline.steps(make_batches(place, SIZES), 0))
    list(learner.score(make_batches(place, [90])))  # looks up without changing anything
    complete, stamped, rows = True, 0, 0
    for name, entry in learner.state.items():
        for number, shard in enumerate(entry.shards):
            if shard.stamps is None:
                continue
            different = (shard.tensor != before[name, number]).reshape(len(shard.tensor), -1).any(dim=1)
            complete &= bool((shard.stamps.values[different] > 0).all())
            if name.endswith("/weight"):
                stamped += shard.stamps.count(0)
                rows += len(shard.tensor)
    return complete, stamped, rows


def _copies(learner: Learner) -> dict[tuple[str, int], torch.Tensor]:
    return {
        (name, number): shard.tensor.clone()
        for name, entry in learner.state.items()
        for number, shard in enumerate(entry.shards)
    }


@pytest.mark.parametrize("settings", PLANS, ids=str)
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_exactly_the_rows_that_training_changes_are_marked(
    worlds: Worlds, world_size: int, settings: dict[str, Any]
) -> None:
    results = worlds.run(world_size, _count, settings)
    assert all(complete for complete, _, _ in results)
    assert 0 < sum(stamped for _, stamped, _ in results) < sum(rows for _, _, rows in results)


def _train(place: Place, directory: str, settings: dict[str, Any], saves: int) -> str:
    """Continue from the newest checkpoint, save after every two steps; the digest at the end."""
    learner = make_learner(place, **settings)
    options = SavingOptions(mode="incremental", in_background=True, chain=2)
    with Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group, options=options
    ) as writer:
        step = writer.newest() or 0
        if step:
            with learner.filling() as state:
                writer.load(step, state, initial=learner.initial)
        batches = list(make_batches(place, [24] * (step + 2 * saves)))[step:]
        for _ in learner.pipeline.steps(batches, step):
            step += 1
            if step % 2 == 0:
                writer.save(step, learner.state, {}, {}, initial=learner.initial, wait=False)
        writer.poll(wait=True)
    return model_digest(learner.state, place.group)


@pytest.mark.parametrize("settings", PLANS, ids=str)
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_learner_resumed_from_differentials_is_bit_identical_to_an_uninterrupted_one(
    worlds: Worlds, tmp_path: Path, world_size: int, settings: dict[str, Any]
) -> None:
    settings = {**settings, "deterministic": True}
    whole = worlds.run(world_size, _train, str(tmp_path / "whole"), settings, 6)
    for _ in range(3):
        parts = worlds.run(world_size, _train, str(tmp_path / "parts"), settings, 2)
    assert set(parts) == set(whole)


def test_ids_are_stamped_in_their_own_tables_whatever_the_last_batch_was() -> None:
    intervals = Intervals()
    stamps = RowStamps(intervals.add(6, torch.device("cpu")), intervals)
    stamp = _Stamp(stamps, torch.tensor([0, 3]))  # two tables of 3 rows
    intervals.now = 1
    ids = torch.tensor([0, 1, 2])
    for offsets in ([0, 2, 3], [0, 1, 3]):  # as many ids, of other features
        stamp(nn.Module(), (), {"indices": ids, "offsets": torch.tensor(offsets)})
    assert stamps.values.tolist() == [1, 1, 0, 0, 1, 1]
