from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_learner import make_batches, make_learner, train_losses
from trainer.base.arguments import make_config
from trainer.checkpoint import Checkpointer
from trainer.sharding.digest import model_digest
from trainer.tables.optim import GROWTH_STEPS, Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.loop.learner import Learner

SMOOTH = {"dense_optimizer": "sgd", "dense_learning_rate": 0.05, "learning_rate": 0.05}
TABLE_OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"]
REPLICATED = {"data_parallel": True}


def _losses(place: Place, settings: dict[str, Any], steps: int) -> list[float]:
    return train_losses(place, make_learner(place, **settings), [64] * steps)


def _resumed_and_unbroken(place: Place, settings: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Digests after 7 steps: with a new learner loaded in between after 3, and in one go."""
    first = make_learner(place, **settings)
    train_losses(place, first, [64] * 3)
    with Checkpointer(
        str(folder), keep=1, rank=place.rank, world_size=place.world_size, group=place.group
    ) as checkpointer:
        checkpointer.save(3, first.state, {}, {})
        second = make_learner(place, **{**settings, "seed": 9})
        checkpointer.load(3, second.state)
    batches = list(make_batches(place, [64] * 7))
    list(second.pipeline.steps(batches[3:], 3))
    unbroken = make_learner(place, **settings)
    list(unbroken.pipeline.steps(batches, 0))
    return model_digest(second.state, place.group), model_digest(unbroken.state, place.group)


def _clipped(place: Place, limit: float) -> float:
    """Length of the first dense step by SGD at rate 1."""
    learner = make_learner(
        place, dense_optimizer="sgd", dense_learning_rate=1.0, lr_decay="none", gradient_clip_norm=limit
    )
    parameters = learner.optimizers.dense.parameters
    before = [parameter.detach().clone() for parameter in parameters]
    train_losses(place, learner, [64])
    moves = [(old - new.detach()).norm() for old, new in zip(before, parameters, strict=True)]
    return float(torch.stack(moves).norm())


def _overflow(place: Place) -> tuple[float, bool, float]:
    """An infinite loss scale: its step is left out and the scale halves."""
    learner = make_learner(place, precision="fp16", **SMOOTH)
    scaler = learner.optimizers.dense.scaler
    scaler.scale.fill_(2.0**120)
    before = [parameter.detach().clone() for parameter in learner.optimizers.dense.parameters]
    train_losses(place, learner, [64])
    after = learner.optimizers.dense.parameters
    halved = float(scaler.scale)
    scaler.scale.fill_(4.0)
    scaler.good_steps.fill_(GROWTH_STEPS - 1)
    train_losses(place, learner, [64])
    return halved, all(map(torch.equal, before, after)) is False, float(scaler.scale)


def _table_types(place: Place) -> set[torch.dtype]:
    state = make_learner(place, embedding_weight_precision="fp16").state
    return {
        shard.tensor.dtype
        for name, entry in state.items()
        if name.startswith("tables/") and name.endswith("/weight")
        for shard in entry.shards
    }


@pytest.mark.parametrize("kind", TABLE_OPTIMIZERS)
@pytest.mark.parametrize("dense", ["adagrad"])
def test_replicas_on_two_ranks_learn_like_one_rank(worlds: Worlds, kind: str, dense: str) -> None:
    settings = {**SMOOTH, **REPLICATED, "table_optimizer": kind, "dense_optimizer": dense}
    one = worlds.run(1, _losses, settings, 20)[0]
    assert worlds.run(2, _losses, settings, 20)[0] == pytest.approx(one, abs=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_replicas_are_updated_like_fused_kernels(worlds: Worlds, kind: str) -> None:
    settings = {**SMOOTH, "table_optimizer": kind}
    fused = worlds.run(1, _losses, settings, 30)[0]
    assert worlds.run(1, _losses, {**settings, **REPLICATED}, 30)[0] == pytest.approx(fused, abs=1e-5)


def test_adam_of_replicas_equals_that_of_torch_if_every_row_is_used(worlds: Worlds) -> None:
    ours, torchs = worlds.run(1, _adams)[0]
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-7)


def _adams(place: Place) -> tuple[torch.Tensor, torch.Tensor]:
    learner = make_learner(place, table_optimizer="adam", data_parallel=True, learning_rate=0.1)
    replicas = learner.optimizers.dense.replicas
    piece = replicas.pieces[0]
    reference = torch.nn.Parameter(piece.weight.clone())
    optimizer = torch.optim.Adam([reference], lr=0.1, eps=replicas.eps)
    flat = piece.gradient_of
    assert flat is not None
    for seed in range(4):
        gradient = torch.randn(piece.weight.shape, generator=torch.Generator().manual_seed(seed))
        flat.grad = torch.zeros_like(flat)
        flat.grad[: gradient.numel()] = gradient.view(-1)
        reference.grad = gradient
        replicas.step()
        optimizer.step()
    return piece.weight.clone(), reference.detach()


@pytest.mark.parametrize("kind", TABLE_OPTIMIZERS)
def test_a_resumed_run_equals_an_uninterrupted_one_with_any_table_optimizer(
    worlds: Worlds, tmp_path: Path, kind: str
) -> None:
    settings = {"table_optimizer": kind, "data_parallel": "adam" in kind}
    resumed, unbroken = worlds.run(2, _resumed_and_unbroken, settings, tmp_path)[0]
    assert resumed == unbroken


@pytest.mark.parametrize(
    "settings",
    [
        {"dense_optimizer": "sgd"},
        {"dense_optimizer": "adagrad"},
        {"dense_optimizer": "adamw", "weight_decay": 0.1},
        {"precision": "fp16"},
        {"precision": "bf16", "gradient_accumulation_steps": 2},
        {"embedding_weight_precision": "fp16"},
        {"interaction": "dcn", "dcn_num_layers": 2, "dcn_low_rank_dim": 4},
    ],
    ids=str,
)
def test_a_resumed_run_equals_an_uninterrupted_one_with_any_numerics(
    worlds: Worlds, tmp_path: Path, settings: dict[str, Any]
) -> None:
    resumed, unbroken = worlds.run(1, _resumed_and_unbroken, settings, tmp_path)[0]
    assert resumed == unbroken


@pytest.mark.parametrize("world_size", [3, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"data_parallel": True}, {"sharding_types": ["row_wise"]}, {"activation_checkpointing": True}],
    ids=str,
)
def test_a_resumed_deterministic_run_of_many_ranks_equals_an_uninterrupted_one(
    worlds: Worlds, tmp_path: Path, world_size: int, settings: dict[str, Any]
) -> None:
    """Two ranks' sums know no order; with three, a resumed run's first step shows their rounding."""
    settings = {**settings, "deterministic": True}
    resumed, unbroken = worlds.run(world_size, _resumed_and_unbroken, settings, tmp_path)[0]
    assert resumed == unbroken


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_lower_precisions_learn_almost_equally(worlds: Worlds, precision: str) -> None:
    exact = worlds.run(1, _losses, SMOOTH, 60)[0]
    lower = worlds.run(1, _losses, {**SMOOTH, "precision": precision}, 60)[0]
    assert lower == pytest.approx(exact, abs=0.01)
    assert lower[-1] < 0.95 * lower[0]


def test_fp16_skips_an_overflowing_step_and_finds_a_loss_scale(worlds: Worlds) -> None:
    halved, moved, grown = worlds.run(1, _overflow)[0]
    assert halved == 2.0**119
    assert moved
    assert grown == 8.0


def test_half_precision_tables_are_stored_in_half_precision_and_learn(worlds: Worlds) -> None:
    assert worlds.run(1, _table_types)[0] == {torch.float16}
    losses = worlds.run(2, _losses, {**SMOOTH, "embedding_weight_precision": "fp16"}, 60)[0]
    assert losses == pytest.approx(worlds.run(1, _losses, SMOOTH, 60)[0], abs=0.01)


@pytest.mark.parametrize("world_size", [1, 2])
def test_dense_gradients_are_clipped_by_their_global_norm(worlds: Worlds, world_size: int) -> None:
    free = worlds.run(world_size, _clipped, 1e6)[0]
    assert free > 0.02
    assert worlds.run(world_size, _clipped, 0.01)[0] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("settings", [{}, {"data_parallel": True}, {"precision": "fp16"}], ids=str)
def test_the_gradient_of_each_embedding_vector_is_clipped(worlds: Worlds, settings: dict[str, Any]) -> None:
    free = worlds.run(1, _table_moves, 1e6, settings)[0]
    limit = sorted(free)[2]
    clipped = worlds.run(1, _table_moves, limit, settings)[0]
    assert clipped == pytest.approx([min(move, limit) for move in free], rel=1e-2)
    assert min(free) < limit < max(free)


def _table_moves(place: Place, limit: float, settings: dict[str, Any]) -> list[float]:
    """How far a single sample moves its row of each table, by SGD at rate 1."""
    settings = {**settings, "table_optimizer": "sgd", "learning_rate": 1.0, "lr_decay": "none"}
    learner = make_learner(place, **settings, table_gradient_clip_norm=limit)
    weights = [_weight(learner, name) for name in learner.shape.num_embeddings]
    before = [weight.clone() for weight in weights]
    train_losses(place, learner, [1])
    return [float((new - old).norm()) for new, old in zip(weights, before, strict=True)]


def _weight(learner: Learner, table: str) -> torch.Tensor:
    return learner.state[f"tables/{table}/weight"].shards[0].tensor


@pytest.mark.parametrize("settings", [{}, {"data_parallel": True}, {"sharding_types": ["row_wise"]}], ids=str)
def test_clipped_tables_learn_equally_on_any_number_of_ranks(
    worlds: Worlds, settings: dict[str, Any]
) -> None:
    clipping = {**SMOOTH, "table_optimizer": "sgd", "learning_rate": 5.0, "table_gradient_clip_norm": 2e-4}
    one = worlds.run(1, _losses, clipping, 30)[0]
    assert worlds.run(3, _losses, {**clipping, **settings}, 30)[0] == pytest.approx(one, abs=1e-5)
    free = {**clipping, "table_gradient_clip_norm": None}
    assert worlds.run(1, _losses, free, 30)[0] != pytest.approx(one, abs=1e-3)


@pytest.mark.parametrize("world_size", [1, 2])
def test_gradient_accumulation_applies_the_mean_gradient(worlds: Worlds, world_size: int) -> None:
    settings = {**SMOOTH, "learning_rate": 1e-12, "lr_decay": "none"}
    collected = worlds.run(
        world_size, _dense_after, {**settings, "gradient_accumulation_steps": 3}, [32] * 6
    )[0]
    expected = worlds.run(1, _dense_by_hand, settings, 3)[0]
    torch.testing.assert_close(collected, expected, rtol=1e-4, atol=1e-6)


def _dense_after(place: Place, settings: dict[str, Any], sizes: list[int]) -> list[torch.Tensor]:
    learner = make_learner(place, **settings)
    train_losses(place, learner, sizes)
    return [parameter.detach().clone() for parameter in learner.optimizers.dense.parameters]


def _dense_by_hand(place: Place, settings: dict[str, Any], every: int) -> list[torch.Tensor]:
    """Two updates, each from the mean of `every` gradients, by plain autograd."""
    learner = make_learner(place, **settings)
    parameters = learner.optimizers.dense.parameters
    inputs = [learner.make_input(batch) for batch in make_batches(place, [32] * 2 * every)]
    for start in (0, every):
        losses = [learner.model(made)[0] for made in inputs[start : start + every]]
        gradients = torch.autograd.grad(sum(losses) / every, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data -= 0.05 * gradient
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("interaction", ["dot", "dcn"])
def test_activation_checkpointing_does_not_change_the_losses(worlds: Worlds, interaction: str) -> None:
    settings = {**SMOOTH, "interaction": interaction, "dcn_low_rank_dim": 4}
    kept = worlds.run(1, _losses, settings, 10)[0]
    assert worlds.run(2, _losses, {**settings, "activation_checkpointing": True}, 10)[0] == pytest.approx(
        kept, abs=1e-5
    )


def test_polynomial_decay_equals_that_of_mlperf() -> None:
    config = make_config(
        {"lr_decay": "polynomial", "lr_warmup_steps": 4, "lr_decay_start": 10, "lr_decay_steps": 20}
    )
    schedule = Schedule(config, 100)
    factors = [schedule.factor(step) for step in (0, 4, 10, 20, 25, 30, 99)]
    assert factors == pytest.approx([0.2, 1.0, 1.0, 0.25, 0.0625, 1e-6, 1e-6])
    to_the_end = Schedule(make_config({"lr_decay": "polynomial", "lr_decay_power": 1.0}), 10)
    assert [to_the_end.factor(step) for step in (0, 5, 9)] == pytest.approx([1.0, 0.5, 0.1])
