"""Where every table lives: the planner's plan, its table for people, and the sharded model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import ShardingEnv

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from torchrec.distributed.types import ShardingPlan

    from trainer.config import TrainerConfig
    from trainer.distributed import World
    from trainer.model import TrainTask

MILLISECONDS = 1000  # the planner counts bandwidth in bytes a millisecond
FUSED_KERNELS = ["fused"]  # never spill silently to slower memory


def make_sharder(config: TrainerConfig) -> EmbeddingBagCollectionSharder:
    """Shard embedding collections, with quantised communication where it is asked for."""
    precisions = (config.qcomm_forward_precision, config.qcomm_backward_precision)
    if precisions == ("fp32", "fp32"):
        return EmbeddingBagCollectionSharder()
    forward, backward = (CommType[precision.upper()] for precision in precisions)
    registry = get_qcomm_codecs_registry(QCommsConfig(forward_precision=forward, backward_precision=backward))
    return EmbeddingBagCollectionSharder(qcomm_codecs_registry=registry)


def make_topology(world: World) -> Topology:
    """Describe the machines to the planner: measured memory, bandwidths from the environment if given."""
    bandwidths = {
        parameter: float(os.environ[variable]) / MILLISECONDS
        for parameter, variable in (
            ("intra_host_bw", "INTRA_NODE_BANDWIDTH"),
            ("inter_host_bw", "CROSS_NODE_BANDWIDTH"),
        )
        if variable in os.environ
    }
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    device_bytes = torch.cuda.mem_get_info()[1] if world.device.type == "cuda" else 0
    return Topology(
        world_size=world.size,
        local_world_size=world.local_size,
        compute_device=world.device.type,
        hbm_cap=device_bytes,
        ddr_cap=host_bytes // world.local_size,
        **bandwidths,
    )


def make_plan(task: TrainTask, config: TrainerConfig, world: World) -> ShardingPlan:
    """Rank 0 plans, the others take its plan; tables that fit nowhere are a ConfigError."""
    constraint = ParameterConstraints(
        sharding_types=list(config.sharding_types), compute_kernels=FUSED_KERNELS
    )
    percentage = float(os.environ.get("STORAGE_RESERVE_PERCENT", "0.15"))
    planner = EmbeddingShardingPlanner(
        topology=make_topology(world),
        batch_size=config.batch_size,
        constraints=dict.fromkeys(task.model.dense.features, constraint),
        storage_reservation=FixedPercentageStorageReservation(percentage),
        debug=False,
        stats=[],
    )
    try:
        return planner.collective_plan(task, [make_sharder(config)], world.control)
    except PlannerError as error:
        raise ConfigError(f"no sharding plan fits this machine: {error}") from error


def shard(
    task: TrainTask, plan: ShardingPlan, config: TrainerConfig, world: World
) -> DistributedModelParallel:
    """Allocate this rank's shards; the dense part is replicated, by DDP if there are several ranks."""
    return DistributedModelParallel(
        module=task,
        env=ShardingEnv.from_process_group(world.group),
        device=world.device,
        plan=plan,
        sharders=[make_sharder(config)],
        init_data_parallel=world.size > 1,
    )


def describe(plan: ShardingPlan) -> list[str]:
    """One line a shard: table, sharding, rows and columns, rank."""
    lines = [f"{'table':<12} {'sharding':<14} {'rows':>21} {'columns':>11} {'rank':>4}"]
    for tables in plan.plan.values():
        for name, parameter in tables.items():
            for piece in parameter.sharding_spec.shards if parameter.sharding_spec else ():
                rows, columns = (
                    f"{start}..{start + size - 1}"
                    for start, size in zip(piece.shard_offsets, piece.shard_sizes, strict=True)
                )
                rank = piece.placement.rank()
                lines.append(f"{name:<12} {parameter.sharding_type:<14} {rows:>21} {columns:>11} {rank:>4}")
    return lines
