"""Learners whose tables are on a device: what they restore was streamed while they trained."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.trainer.support_caching import use_caching_tables
from tests.trainer.support_device import LateDevice
from tests.trainer.support_learner import make_batches, make_learner
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.limits import StreamLimits
from trainer.checkpoint.save.saves import SavingOptions
from trainer.sharding.digest import model_digest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.checkpoint.save.saves import Mode

PLANS: list[tuple[dict[str, object], Mode]] = [
    ({}, "full"),
    ({"table_kernel": "fbgemm", "sharding_types": ["row_wise"]}, "incremental"),
    ({"sharding_types": ["column_wise"], "table_optimizer": "adagrad"}, "full"),
    ({"data_parallel": True}, "full"),
    ({"data_parallel": True}, "incremental"),
    ({"pipeline": "sparse_dist", "sharding_types": ["table_wise"]}, "incremental"),
    ({"embedding_weight_precision": "fp16"}, "incremental"),
]


def _train(
    place: Place, folder: str, settings: dict[str, object], mode: Mode, steps: int, *, cached: bool
) -> str:
    """Continue from the newest checkpoint, and save after every second step of a learner on a device."""
    with pytest.MonkeyPatch.context() as patch:
        if cached:
            use_caching_tables(patch)
        learner = make_learner(place, deterministic=True, **settings)
    device = LateDevice(eager=0.3, seed=place.rank)
    device.put(shard.tensor for entry in learner.entries.values() for shard in entry.shards)
    limits = StreamLimits(chunk=256, copied=4096)
    options = SavingOptions(mode=mode, in_background=True, chain=2, stream=limits)
    given = {"rank": place.rank, "world_size": place.world_size, "group": place.group}
    with Checkpointer(folder, keep=2, **given, options=options, device=device) as writer:
        step = writer.newest() or 0
        if step:
            with learner.filling() as state:
                writer.load(step, state, initial=learner.initial)
        batches = list(make_batches(place, [24] * (step + steps)))[step:]
        for _ in learner.pipeline.steps(batches, step):
            step += 1
            device.trained()
            if step % 2 == 0:
                writer.save(step, learner.state, {}, {}, initial=learner.initial, wait=False)
        writer.poll(wait=True)
    return model_digest(learner.state, place.group)


@pytest.mark.parametrize(("settings", "mode"), PLANS, ids=str)
def test_a_learner_on_a_device_resumes_bit_for_bit_from_checkpoints_that_were_streamed_while_it_trained(
    worlds: Worlds, tmp_path: Path, settings: dict[str, object], mode: Mode
) -> None:
    train = partial(_train, cached=False)
    whole = worlds.run(2, train, str(tmp_path / "whole"), settings, mode, 8)
    for steps in (4, 2, 2):
        parts = worlds.run(2, train, str(tmp_path / "parts"), settings, mode, steps)
    assert len(set(parts + whole)) == 1


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_a_cached_table_is_streamed_as_it_was_flushed_at_the_cut(
    worlds: Worlds, tmp_path: Path, mode: Mode
) -> None:
    train, settings = partial(_train, cached=True), {"table_kernel": "fbgemm"}
    whole = worlds.run(1, train, str(tmp_path / "whole"), settings, mode, 8)
    for steps in (4, 2, 2):
        parts = worlds.run(1, train, str(tmp_path / "parts"), settings, mode, steps)
    assert parts == whole
