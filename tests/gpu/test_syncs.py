"""On a real GPU: steps for which the host never waits, and what tables hand over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.support_learner import ROWS, SHAPE, make_batches
from tests.trainer.support_ranks import Place
from trainer.base.arguments import make_config
from trainer.base.distributed import World, join_world
from trainer.loop.learner import Learner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

SIZES: dict[str, Any] = {
    "device": "cuda",
    "embedding_dim": SHAPE.embedding_dim,
    "dense_arch_layer_sizes": SHAPE.dense_arch_layer_sizes,
    "over_arch_layer_sizes": SHAPE.over_arch_layer_sizes,
    "optimizer_eps": 1e-4,
    "learning_rate": 0.05,
}
BATCH = 512
WARM_UP, STEPS = 10, 20


def _learner(world: World, **settings: Any) -> Learner:
    return Learner(make_config({**SIZES, **settings}), SHAPE, world, total_steps=100)


def _batches(world: World, steps: int) -> Any:
    return make_batches(Place(rank=0, world_size=1, group=world.group), [BATCH] * steps)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bf16", "compile": "on"},
        {"precision": "bf16"},
        {"data_parallel": True},
        {"data_parallel": True, "precision": "bf16", "table_optimizer": "adam"},
        {"precision": "fp16"},
        {"precision": "fp16", "dense_optimizer": "sgd", "gradient_clip_norm": 0.1},
        {"gradient_clip_norm": 0.1, "dense_optimizer": "adagrad"},
        {"gradient_accumulation_steps": 2},
        {"precision": "fp16", "gradient_accumulation_steps": 2},
        {"precision": "bf16", "checkpoint_mode": "incremental", "table_gradient_clip_norm": 0.1},
    ],
    ids=str,
)
def test_steps_wait_for_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    torch._dynamo.reset()
    with join_world("cuda", tmp_path) as world:
        learner = _learner(world, **{"compile": "off", **settings})
        steps = learner.pipeline.steps(_batches(world, WARM_UP + STEPS + 2), 0)
        for _ in range(WARM_UP):
            next(steps)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            losses = [next(steps).loss for _ in range(STEPS)]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.isfinite(torch.stack(losses)).all()


def _losses(world: World, **settings: Any) -> list[float]:
    torch._dynamo.reset()
    learner = _learner(world, **settings)
    return [float(step.loss) for step in learner.pipeline.steps(_batches(world, 40), 0)]


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
@pytest.mark.parametrize("settings", [{}, {"data_parallel": True}, {"compile": "on"}], ids=str)
def test_reduced_precisions_learn_as_fp32(tmp_path: Path, precision: str, settings: dict[str, Any]) -> None:
    with join_world("cuda", tmp_path) as world:
        exact = _losses(world, compile="off")
        found = _losses(world, **{"compile": "off", "precision": precision, **settings})
    assert found == pytest.approx(exact, abs=0.01)
    assert found[-1] < found[0]


@pytest.mark.parametrize(
    "settings", [{}, {"data_parallel": True}, {"sharding_types": ("row_wise",)}], ids=str
)
@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float32)])
def test_the_type_that_tables_hand_over(
    tmp_path: Path, settings: dict[str, Any], precision: str, dtype: torch.dtype
) -> None:
    seen = []
    with join_world("cuda", tmp_path) as world:
        learner = _learner(world, precision=precision, **settings)
        learner._task.model.dense.register_forward_pre_hook(
            lambda _, given: seen.append(given[1].values().dtype)
        )
        for _ in learner.pipeline.steps(_batches(world, 2), 0):
            pass
        weights = {entry.shards[0].tensor.dtype for name, entry in learner.state.items() if "tables/" in name}
    assert seen == [dtype, dtype]
    assert weights == {torch.float32}


def test_a_mask_updates_replicas_as_the_cpu_does(tmp_path: Path) -> None:
    found = []
    for device in ("cpu", "cuda"):
        with join_world(device, tmp_path / device) as world:
            learner = _learner(world, device=device, data_parallel=True, compile="off")
            for _ in learner.pipeline.steps(_batches(world, 10), 0):
                pass
            found.append({name: entry.shards[0].tensor.cpu() for name, entry in learner.state.items()})
    assert len(found[0]) > len(ROWS)
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-3, atol=1e-4)
