from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torchrec.modules.crossnet import LowRankCrossNet
from torchrec.sparse.jagged_tensor import KeyedTensor

from tests.trainer.support_learner import ROWS, SHAPE, make_batches, make_learner, make_world, train_losses
from trainer.base.arguments import make_config
from trainer.data.batch import Batch
from trainer.models.dense_ops import CrossNet
from trainer.models.model import ModelShape, initialise_dense, make_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

CPU = torch.device("cpu")
SMOOTH = {"dense_optimizer": "sgd", "dense_learning_rate": 0.05, "learning_rate": 0.05}
DCN = {**SMOOTH, "interaction": "dcn", "dcn_num_layers": 2, "dcn_low_rank_dim": 4}
ARCHITECTURES = {
    "golden": ("512,256,64", "512,512,256,1", 64),
    "mlperf": ("512,256,128", "1024,1024,512,256,1", 128),
}


def _losses(place: Place, settings: dict[str, Any]) -> list[float]:
    return train_losses(place, make_learner(place, **settings), [64] * 9 + [1])


def _multi_hot(place: Place, sizes: list[int]) -> Iterator[Batch]:
    """0 to 3 ids a feature; feature-major, as one-hot ids are."""
    generator = torch.Generator().manual_seed(3)
    for size in sizes:
        lengths = torch.randint(0, 4, (len(ROWS), size), generator=generator).int()
        ids = [torch.randint(0, rows, (size, 3), generator=generator) for rows in ROWS]
        dense, labels = (
            torch.rand(size, 3, generator=generator),
            torch.rand(size, generator=generator).round(),
        )
        share = slice(size * place.rank // place.world_size, size * (place.rank + 1) // place.world_size)
        mine = [
            ids[feature][sample, : int(lengths[feature, sample])]
            for feature in range(len(ROWS))
            for sample in range(size)[share]
        ]
        yield Batch(
            dense[share],
            torch.cat(mine).int() if mine else torch.zeros(0, dtype=torch.int32),
            labels[share],
            torch.arange(size)[share],
            size,
            lengths[:, share].contiguous(),
        )


def _multi_hot_losses(place: Place, settings: dict[str, Any]) -> list[float]:
    learner = make_learner(place, **settings)
    world = make_world(place)
    steps = learner.pipeline.steps(_multi_hot(place, [32] * 8 + [1]), 0)
    return [world.sum([float(step.loss)])[0] / world.size for step in steps]


def _pooled(place: Place) -> tuple[torch.Tensor, torch.Tensor]:
    """What the tables give for multi-hot ids, and the sums of their rows taken one by one."""
    learner = make_learner(place)
    (batch,) = _multi_hot(place, [16])
    embedded = learner.model.module.model.embeddings(learner.make_input(batch).sparse)
    assert batch.lengths is not None
    parts = batch.sparse.long().split([int(length) for length in batch.lengths.view(-1)])
    rows = []
    for index, part in enumerate(parts):
        weight = learner.state[f"tables/C{index // 16 + 1}/weight"].shards[0].tensor
        rows.append(weight[part].sum(0))
    expected = torch.stack(rows).view(len(ROWS), 16, -1)
    values = torch.stack([embedded[f"C{index + 1}"] for index in range(len(ROWS))])
    return values.detach(), expected


def _one_hot_both_ways(place: Place) -> tuple[list[float], list[float]]:
    plain = train_losses(place, make_learner(place, **SMOOTH), [32] * 4)
    learner = make_learner(place, **SMOOTH)
    batches = [
        Batch(
            batch.dense,
            batch.sparse.reshape(-1),
            batch.labels,
            batch.sample_ids,
            batch.global_size,
            torch.ones_like(batch.sparse),
        )
        for batch in make_batches(place, [32] * 4)
    ]
    return plain, [float(step.loss) for step in learner.pipeline.steps(batches, 0)]


def test_cross_layers_equal_those_of_torchrec() -> None:
    ours, theirs = CrossNet(12, 3, 4, device=CPU), LowRankCrossNet(12, 3, 4)
    with torch.no_grad():
        for index in range(3):
            theirs.V_kernels[index].copy_(ours.narrow[index].weight)
            theirs.W_kernels[index].copy_(ours.widen[index].weight)
            theirs.bias[index].copy_(ours.widen[index].bias)
    inputs = torch.randn(5, 12)
    torch.testing.assert_close(ours(inputs, dtype=torch.float32), theirs(inputs))


@pytest.mark.parametrize("interaction", ["dot", "dcn"])
def test_scores_do_not_depend_on_the_order_of_tables(interaction: str) -> None:
    shape = ModelShape(**{**_fields(SHAPE), "interaction": interaction, "dcn_low_rank_dim": 4})
    config = make_config({"embedding_dim": 8, "dense_arch_layer_sizes": (16, 8)})
    dense = make_model(config, shape, CPU).dense
    initialise_dense(dense, 0)
    names, vectors = list(shape.num_embeddings), torch.randn(4, len(ROWS), 8)
    order = [3, 0, 4, 1, 2]
    inputs = torch.rand(4, 3)
    scores = [
        dense(inputs, KeyedTensor([names[i] for i in places], [8] * 5, vectors[:, places].flatten(1)))
        for places in (range(5), order)
        for places in [list(places)]
    ]
    torch.testing.assert_close(scores[0], scores[1])


def _fields(shape: ModelShape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in ModelShape.__dataclass_fields__}


@pytest.mark.parametrize("world_size", [2, 3])
def test_cross_layers_learn_equally_on_any_number_of_ranks(worlds: Worlds, world_size: int) -> None:
    one = worlds.run(1, _losses, DCN)[0]
    assert worlds.run(world_size, _losses, DCN)[0] == pytest.approx(one, abs=1e-5)
    assert one != pytest.approx(worlds.run(1, _losses, SMOOTH)[0], abs=1e-3)


@pytest.mark.parametrize("interaction", ["dot", "dcn"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_published_architectures_are_available_through_flags(name: str, interaction: str) -> None:
    bottom, top, dim = ARCHITECTURES[name]
    config = make_config(
        {
            "dense_arch_layer_sizes": bottom.split(","),
            "over_arch_layer_sizes": top.split(","),
            "embedding_dim": dim,
            "interaction": interaction,
        }
    )
    shape = ModelShape(
        num_dense=13,
        num_embeddings={f"C{index}": 10 for index in range(26)},
        embedding_dim=dim,
        dense_arch_layer_sizes=config.dense_arch_layer_sizes,
        over_arch_layer_sizes=config.over_arch_layer_sizes,
        interaction=interaction,
    )
    first = make_model(config, shape, torch.device("meta")).dense.top.layers[0]
    assert first.weight.shape[1] == (dim * 27 if interaction == "dcn" else dim + 27 * 26 // 2)


def test_embeddings_of_the_ids_of_a_feature_are_summed(worlds: Worlds) -> None:
    pooled, expected = worlds.run(1, _pooled)[0]
    torch.testing.assert_close(pooled, expected)


def test_single_ids_are_equal_with_and_without_lengths(worlds: Worlds) -> None:
    plain, with_lengths = worlds.run(1, _one_hot_both_ways)[0]
    assert with_lengths == pytest.approx(plain, abs=1e-7)


@pytest.mark.parametrize("settings", [{}, {"sharding_types": ["row_wise"]}, {"data_parallel": True}], ids=str)
@pytest.mark.parametrize("pipeline", ["plain", "sparse_dist"])
def test_multi_hot_ids_learn_equally_under_any_plan(
    worlds: Worlds, settings: dict[str, Any], pipeline: str
) -> None:
    smooth = {**SMOOTH, "table_optimizer": "adagrad"}
    one = worlds.run(1, _multi_hot_losses, smooth)[0]
    several = worlds.run(3, _multi_hot_losses, {**smooth, **settings, "pipeline": pipeline})[0]
    assert several == pytest.approx(one, abs=1e-5)
