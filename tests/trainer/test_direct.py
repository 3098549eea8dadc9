"""The direct look-up of a world of one gives what torchrec's way gives, and trains the same rows."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.support_learner import SHAPE, make_batches, make_learner
from tests.trainer.support_ranks import Place
from tests.trainer.support_worlds import Worlds
from trainer.tables.direct import find_direct_way

SIZES = [64, 64, 17]


def _train(place: Place, kinds: tuple[str, ...]) -> list[tuple[list[float], list[torch.Tensor]]]:
    """Return the losses and the trained tables, by torchrec's way and by the direct one."""
    found = []
    for direct in (False, True):
        learner = make_learner(place, table_kernel="fbgemm", pipeline="plain", sharding_types=kinds)
        way = find_direct_way(learner.model, SHAPE.features)
        assert way is not None
        learner._task.model.look_up = way if direct else None
        losses = [float(step.loss) for step in learner.pipeline.steps(make_batches(place, SIZES), 0)]
        names = sorted(name for name in learner.state if name.endswith("/weight"))
        found.append((losses, [learner.state[name].shards[0].tensor.clone() for name in names]))
    return found


@pytest.mark.parametrize("kinds", [("table_wise",), ("row_wise",)], ids=str)
def test_the_direct_way_trains_as_torchrecs(worlds: Worlds, kinds: tuple[str, ...]) -> None:
    (expected, tables), (losses, same) = worlds.run(1, _train, kinds)[0]
    assert losses == expected
    assert all(torch.equal(*pair) for pair in zip(tables, same, strict=True))


def _way_with_several_kernels(place: Place) -> bool:
    constraints = {"C1": {"sharding_types": ["data_parallel"], "compute_kernels": ["dense"]}}
    learner = make_learner(place, table_kernel="fbgemm", table_constraints=constraints)
    return find_direct_way(learner.model, SHAPE.features) is not None


def test_tables_in_several_kernels_have_no_direct_way(worlds: Worlds) -> None:
    assert worlds.run(1, _way_with_several_kernels) == [False]
