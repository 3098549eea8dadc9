"""The type that tables hand over: of a GPU's arithmetic, but never on CPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_configs import DataType

from tests.trainer.support_learner import SHAPE, make_batches, make_learner, make_world
from tests.trainer.support_ranks import Place
from tests.trainer.support_worlds import Worlds
from trainer.base.arguments import make_config
from trainer.models.inputs import InputMaker
from trainer.models.model import TrainTask, make_model
from trainer.sharding.planfile import MODULE
from trainer.sharding.sharding import choose_plan, handed_over, make_sharder
from trainer.sharding.topology import Machines
from trainer.tables.kernels import send_nothing_as, sharded_tables, table_pieces
from trainer.tables.optim import fuse_table_optimizer

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({"precision": "bf16"}, GPU, DataType.BF16),
        ({"precision": "bf16", "model": "dcn_v2"}, GPU, DataType.BF16),
        ({"precision": "bf16", "model": "deepfm"}, GPU, DataType.FP32),  # models get fp32 by their protocol
        ({"precision": "fp16"}, GPU, DataType.FP32),  # gradients without a loss scale would round to 0
        ({"precision": "tf32"}, GPU, DataType.FP32),
        ({"precision": "bf16"}, CPU, DataType.FP32),
    ],
    ids=str,
)
def test_what_tables_hand_over(settings: dict[str, Any], device: torch.device, expected: DataType) -> None:
    assert handed_over(make_config(settings), device) == expected


def test_the_planner_does_not_see_it() -> None:
    config = make_config({"precision": "bf16"})
    assert not make_sharder(config).fused_params
    assert make_sharder(config, DataType.BF16).fused_params == {"output_dtype": DataType.BF16}


def _with_all_tables_on_the_first_rank(place: Place) -> list[tuple[torch.dtype, torch.Tensor, int]]:
    """Vectors as fp32 and as fp16 on this rank, and the number of its tables."""
    config = make_config(
        {
            "embedding_dim": SHAPE.embedding_dim,
            "dense_arch_layer_sizes": SHAPE.dense_arch_layer_sizes,
            "over_arch_layer_sizes": SHAPE.over_arch_layer_sizes,
            "threads": 1,
        }
    )
    learner = make_learner(place, sharding_types=("table_wise",))
    plan = learner.plan
    for parameter in plan.plan[MODULE].values():
        parameter.ranks = [0]
        for piece in parameter.sharding_spec.shards:
            piece.placement = type(piece.placement)("rank:0/cpu")
    world = make_world(place)
    found = []
    for output, dtype in ((DataType.FP32, torch.float32), (DataType.FP16, torch.float16)):
        task = TrainTask(make_model(config, SHAPE, CPU))
        fuse_table_optimizer(task.model.embeddings, config, CPU, ranks=place.world_size)
        model = DistributedModelParallel(
            module=task,
            env=ShardingEnv.from_process_group(place.group),
            device=CPU,
            plan=plan,
            sharders=[make_sharder(config, output)],
        )
        send_nothing_as(model, dtype)
        pieces = list(table_pieces(model))
        for piece in pieces:
            piece.weight.copy_(torch.arange(piece.weight.numel()).view(piece.weight.shape) % 97)
        batch = next(make_batches(place, [32]))
        made = InputMaker(SHAPE.features, world.size)(batch)
        values = sharded_tables(model)(made.sparse).wait().values()
        values.sum().backward()
        found.append((values.dtype, values.detach().float(), len(pieces)))
    return found


def test_a_rank_without_tables_receives_what_the_others_hand_over(worlds: Worlds) -> None:
    for rank, found in enumerate(worlds.run(2, _with_all_tables_on_the_first_rank)):
        (wide, exact, _), (narrow, halves, tables) = found
        assert (wide, narrow, tables) == (torch.float32, torch.float16, 0 if rank else 5)
        assert exact.abs().max() > 50
        assert torch.equal(exact, halves)  # small whole numbers


def _kinds(machines: Machines, **settings: Any) -> set[str]:
    config = make_config(
        {
            "embedding_dim": 8,
            "dense_arch_layer_sizes": (16, 8),
            "over_arch_layer_sizes": (16, 1),
            "batch_size": 64,
            **settings,
        }
    )
    task = TrainTask(make_model(config, SHAPE, torch.device("meta")))
    plan = choose_plan(task, SHAPE, config, machines)
    return {parameter.sharding_type for parameter in plan.plan[MODULE].values()}


def test_a_single_gpu_divides_no_table() -> None:
    one = Machines(world_size=1, local_world_size=1, device="cuda", hbm_bytes=10**9, ddr_bytes=10**9)
    assert _kinds(one) == {"table_wise"}
    assert _kinds(one, sharding_types=("row_wise",)) == {"row_wise"}
