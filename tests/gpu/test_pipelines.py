"""torchrec's pipelines on a real GPU: their steps are those of the plain one, also around evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.support_learner import SHAPE, make_batches
from tests.trainer.support_ranks import Place
from trainer.base.arguments import make_config
from trainer.base.distributed import World, join_world
from trainer.base.errors import ConfigError
from trainer.loop.learner import Learner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

SIZES: dict[str, Any] = {
    "device": "cuda",
    "compile": "off",
    "embedding_dim": SHAPE.embedding_dim,
    "dense_arch_layer_sizes": SHAPE.dense_arch_layer_sizes,
    "over_arch_layer_sizes": SHAPE.over_arch_layer_sizes,
    "optimizer_eps": 1e-4,
    "learning_rate": 0.05,
}
CACHED: dict[str, Any] = {"compute_kernels": ("fused_uvm_caching",), "uvm_cache_load_factor": 0.5}
STEPS = 24


def _course(world: World, **settings: Any) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Losses, scores of evaluations after some steps, and the model at the end."""
    learner = Learner(make_config({**SIZES, **settings}), SHAPE, world, total_steps=100)
    place = Place(rank=0, world_size=1, group=world.group)
    losses, scores = [], []
    for number, step in enumerate(learner.pipeline.steps(make_batches(place, [128] * STEPS + [37]), 0)):
        losses.append(float(step.loss))
        if number % 8 == 5:
            for logits, _ in learner.score(make_batches(place, [96])):
                scores += logits.tolist()
        if number % 8 == 7:
            assert learner.state  # as a checkpoint reads it
    state = {name: entry.shards[0].tensor.cpu().clone() for name, entry in learner.state.items()}
    return losses, scores, state


@pytest.mark.parametrize(
    ("choice", "settings"),
    [
        ("sparse_dist", {}),
        ("sparse_dist", CACHED),
        ("fused_sparse_dist", {}),
        ("fused_sparse_dist", {"table_optimizer": "adam"}),
        ("prefetch", CACHED),
        ("prefetch", {**CACHED, "uvm_cache_load_factor": 0.9, "table_optimizer": "adam"}),
    ],
    ids=str,
)
def test_a_pipeline_trains_the_model_of_the_plain_one(
    tmp_path: Path, choice: str, settings: dict[str, Any]
) -> None:
    with join_world("cuda", tmp_path) as world:
        losses, scores, state = _course(world, pipeline="plain", **settings)
        found = _course(world, pipeline=choice, **settings)
    assert found[0] == pytest.approx(losses, abs=1e-4)
    assert found[1] == pytest.approx(scores, abs=1e-3)
    for name, tensor in state.items():
        torch.testing.assert_close(found[2][name], tensor, rtol=1e-2, atol=1e-4, msg=name)


def test_semi_synchronous_steps_learn(tmp_path: Path) -> None:
    with join_world("cuda", tmp_path) as world:
        losses, _, _ = _course(world, pipeline="plain")
        found, _, _ = _course(world, pipeline="semi_sync")
    assert found != losses
    assert found[-2] == pytest.approx(losses[-2], abs=0.1)
    assert found[-2] < found[0]


def test_prefetch_needs_a_cache(tmp_path: Path) -> None:
    with join_world("cuda", tmp_path) as world, pytest.raises(ConfigError, match="but no table has"):
        _course(world, pipeline="prefetch")
