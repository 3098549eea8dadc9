"""Sharding: the planner's plan or a given one, its printed form, and the sharded model."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
from torch import distributed
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import CacheParams, ShardingEnv
from torchrec.modules.embedding_configs import DataType, data_type_to_dtype

from trainer.base.config import DLRM_MODELS
from trainer.base.errors import ConfigError, PeerError
from trainer.base.table_optimizers import explain_column_cut
from trainer.sharding.planfile import CACHING, FROM_CHECKPOINT, MODULE, parse_plan, read_plan
from trainer.sharding.topology import GB, Machines, make_topology, read_reserve, this_world
from trainer.tables.kernels import send_nothing_as
from trainer.tables.ordered_sums import fix_order_of_sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torchrec.distributed.types import ShardingPlan

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.models.model import ModelShape, TrainTask

KINDS = (
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
    "data_parallel",
)
KERNELS = ("fused", CACHING, "fused_uvm", "dense")
MIN_COLUMNS = 128  # torchrec's default: narrower pieces of a row cost more than they save
MAX_ROWS = 2**31 - 1
KERNEL_COLUMNS = 4  # fbgemm's kernels need a multiple of it
STATE_COPIES = {  # bytes of optimizer state for a byte of weights, roughly
    "sgd": 0.0,
    "adagrad": 1.0,
    "rowwise_adagrad": 0.0,
    "adam": 2.0,
    "partial_rowwise_adam": 1.0,
}
SPLITS_ROWS = frozenset({"row_wise", "table_row_wise", "grid_shard"})


class Sharder(EmbeddingBagCollectionSharder):
    """torchrec's sharder that also allows row-wise tables on CPUs: torchrec excludes them, yet they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return all sharding types, on every device."""
        del compute_device_type
        return list(KINDS)


class OrderedEnumerator(EmbeddingEnumerator):
    """torchrec's enumerator with a fixed order of options; torchrec's order is that of sets.

    The planner takes the first of equal options, so without this, two processes could make different plans.
    """

    def _filter_sharding_types(self, *given: Any, **named: Any) -> list[str]:  # noqa: ANN401 - handed on
        return sorted(super()._filter_sharding_types(*given, **named), key=KINDS.index)

    def _filter_compute_kernels(self, *given: Any, **named: Any) -> list[str]:  # noqa: ANN401 - handed on
        return sorted(super()._filter_compute_kernels(*given, **named), key=KERNELS.index)


def handed_over(config: TrainerConfig, device: torch.device) -> DataType:
    """Return the type of the vectors that tables hand over, and of the gradients that they get.

    On GPUs it is that of a DLRM's arithmetic: it halves what look-ups write and backward reads. Weights and
    optimizer states keep their types. With fp16 it is fp32, because the tables' gradients have no loss scale
    and would round to 0. Other models take fp32 by their protocol.
    """
    halves = device.type == "cuda" and config.precision == "bf16" and config.model in DLRM_MODELS
    return DataType.BF16 if halves else DataType.FP32


def make_sharder(
    config: TrainerConfig, output: DataType = DataType.FP32, *, checks_ids: bool = True
) -> EmbeddingBagCollectionSharder:
    """Return a sharder for embedding collections, with the configured precision of communication.

    Args:
        config: the run's settings.
        output: the type that tables hand over; plans do not depend on it.
        checks_ids: fbgemm's kernels check that ids are in range, once more, and set those that are not to 0.
    """
    fused: dict[str, Any] = {} if checks_ids else {"bounds_check_mode": BoundsCheckMode.NONE}
    if output != DataType.FP32:
        fused["output_dtype"] = output
    precisions = (config.qcomm_forward_precision, config.qcomm_backward_precision)
    if precisions == ("fp32", "fp32"):
        return Sharder(fused_params=fused or None)
    forward, backward = (CommType[precision.upper()] for precision in precisions)
    row = config.embedding_dim  # fp8 has one scale per row
    settings = QCommsConfig(
        forward_precision=forward,
        backward_precision=backward,
        fp8_quantize_dim=row if forward == CommType.FP8 else None,
        fp8_quantize_dim_bwd=row if backward == CommType.FP8 else None,
    )
    return Sharder(fused_params=fused or None, qcomm_codecs_registry=get_qcomm_codecs_registry(settings))


def make_plan(
    task: TrainTask,
    shape: ModelShape,
    config: TrainerConfig,
    world: World,
    *,
    saved: Mapping[str, Any] | None = None,
) -> ShardingPlan:
    """Return rank 0's plan, which it makes or reads; collective.

    Args:
        task: the model.
        shape: its sizes.
        config: the run's settings.
        world: the ranks.
        saved: the plan of a checkpoint, to be used in place of a new one; rank 0's counts.

    Raises:
        ConfigError: on all ranks: the plan or the configuration is wrong.
        PeerError: on the other ranks, for any other exception on rank 0.
    """
    answer: list[Any] = [None]
    if world.rank == 0:
        try:
            answer = [choose_plan(task, shape, config, this_world(config, world), saved)]
        except Exception as error:  # noqa: BLE001 - raised below, once the others know and do not wait
            answer = [error]
    if world.size > 1:
        # Only rank 0 has crashed: on the others, an unexpected error is the loss of a peer.
        message = [PeerError(str(answer[0])) if _is_unforeseen(answer[0]) else answer[0]]
        distributed.broadcast_object_list(message, src=0, group=world.control)
        answer = answer if world.rank == 0 else message
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def _is_unforeseen(answer: Any) -> bool:  # noqa: ANN401 - a plan or an error
    return isinstance(answer, Exception) and not isinstance(answer, ConfigError)


def choose_plan(
    task: TrainTask,
    shape: ModelShape,
    config: TrainerConfig,
    machines: Machines,
    saved: Mapping[str, Any] | None = None,
) -> ShardingPlan:
    """Read the configured plan, or make one for these machines; needs no process group and no GPU."""
    for table in config.table_constraints:
        if table not in shape.num_embeddings:
            raise ConfigError(
                f"table_constraints names {table}, but the model's tables are "
                f"{', '.join(shape.num_embeddings)}"
            )
    for table, rows in shape.num_embeddings.items():
        if rows > MAX_ROWS:
            raise ConfigError(
                f"the table {table} has {rows} rows; ids are 32 bits wide, so {MAX_ROWS} is the most: hash "
                "its ids into fewer rows"
            )
    if saved is not None:
        plan = parse_plan(saved, shape, machines, where="of the checkpoint")
    elif config.sharding_plan not in (None, FROM_CHECKPOINT):
        plan = read_plan(Path(config.sharding_plan), shape, machines)
    else:
        plan = _search(task, shape, config, machines)
    _check_rows_are_whole(plan, config)
    _check_optimizer(plan, shape, config, machines)
    _check_communication(plan, config, machines)
    return plan


def _search(task: TrainTask, shape: ModelShape, config: TrainerConfig, machines: Machines) -> ShardingPlan:
    if config.planner == "dynamic_programming" and machines.device == "cpu":
        raise ConfigError(
            "planner is dynamic_programming, which divides GPU memory, but the device is cpu; take greedy"
        )
    topology = make_topology(machines, os.environ)
    hotness = shape.hotness or (1,) * len(shape.features)
    of_table: dict[str, list[int]] = {table: [] for table in shape.num_embeddings}
    for (feature, table), hot in zip(shape.tables_of_features.items(), hotness, strict=True):
        length = shape.places.get(feature)
        of_table[table] += [hot] if length is None else [1] * length  # each place has one id at most
    constraints = {table: _constraint(table, hot, config, machines) for table, hot in of_table.items()}
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=config.batch_size,
        enumerator=OrderedEnumerator(topology, config.batch_size, constraints),
        constraints=constraints,
        storage_reservation=FixedPercentageStorageReservation(read_reserve(os.environ)),
        proposer=DynamicProgrammingProposer() if config.planner == "dynamic_programming" else None,
        debug=False,
        stats=[],
    )
    try:
        with _without_remarks_on_replicas():
            return planner.plan(task, [make_sharder(config)])
    except PlannerError as error:
        raise ConfigError(_explain_misfit(shape, config, machines)) from error
    except RuntimeError as error:
        if "No available sharding type" not in str(error):
            raise
        table = str(error).split("constraints for ")[-1].split(".")[0]
        raise ConfigError(
            f"nothing is left to choose from for {table}: no pair of its sharding_types and compute_kernels "
            f"works on {machines.device}; data_parallel needs the kernel dense, all others fused, or on GPUs "
            "fused_uvm or fused_uvm_caching"
        ) from error


def _constraint(
    table: str, hotness: Sequence[int], config: TrainerConfig, machines: Machines
) -> ParameterConstraints:
    own = config.table_constraints.get(table)
    kinds = (own and own.sharding_types) or config.sharding_types
    kernels = (own and own.compute_kernels) or config.compute_kernels
    if machines.device == "cuda" and machines.world_size == 1 and "table_wise" in kinds:
        kinds = ("table_wise",)  # the others divide nothing here, and sort the ids of each step nevertheless
    if config.data_parallel:
        kinds, kernels = ("data_parallel",), ("dense",)
    half = math.ceil(config.embedding_dim / 2 / KERNEL_COLUMNS) * KERNEL_COLUMNS
    share = (own and own.uvm_cache_load_factor) or config.uvm_cache_load_factor
    return ParameterConstraints(
        sharding_types=list(kinds),
        compute_kernels=list(kernels),
        min_partition=min(MIN_COLUMNS, half),
        pooling_factors=[float(each) for each in hotness],
        cache_params=CacheParams(load_factor=share) if CACHING in kernels else None,
    )


def _explain_misfit(shape: ModelShape, config: TrainerConfig, machines: Machines) -> str:
    """Return a message with sizes, for users; the planner's message lists proposals and partitions."""
    element = 2 if config.embedding_weight_precision == "fp16" else 4
    number_bytes = element * (1 + STATE_COPIES[config.table_optimizer])
    needs = {
        table: rows * shape.dim(table) * number_bytes / GB for table, rows in shape.num_embeddings.items()
    }
    largest = max(needs, key=lambda table: needs[table])
    reserve = read_reserve(os.environ)
    have = machines.memory_bytes * (1 - reserve) / GB
    kinds = "row_wise" if explain_column_cut(config.table_optimizer, "") else "row_wise or column_wise"
    return (
        f"the tables do not fit: with their optimizer state they need {sum(needs.values()):.3g} GB "
        f"({largest} alone {needs[largest]:.3g}), and each of {machines.world_size} ranks has {have:.3g} GB "
        f"of {machines.memory_name} memory for them ({reserve:.0%} kept back by STORAGE_RESERVE_PERCENT); "
        f"allow {kinds} in sharding_types, add ranks, take a smaller embedding_dim or "
        "embedding_weight_precision fp16, or on GPUs allow fused_uvm_caching in compute_kernels"
    )


def _check_rows_are_whole(plan: ShardingPlan, config: TrainerConfig) -> None:
    """Refuse a split of rows that the optimizer does not allow; a plan from a file may contain one."""
    for table, parameter in plan.plan[MODULE].items():
        spec = parameter.sharding_spec
        firsts = {piece.shard_offsets[1] for piece in spec.shards} if spec is not None else set()
        cut = f"{table} is cut by columns ({parameter.sharding_type}) into {len(firsts)} pieces"
        if len(firsts) > 1 and (problem := explain_column_cut(config.table_optimizer, cut)):
            if config.sharding_plan is not None:
                problem = f"the sharding plan {config.sharding_plan} cannot be used: {problem}"
            raise ConfigError(problem)


def _check_optimizer(
    plan: ShardingPlan, shape: ModelShape, config: TrainerConfig, machines: Machines
) -> None:
    tables = plan.plan[MODULE]
    fused = [table for table, parameter in tables.items() if parameter.sharding_type != "data_parallel"]
    replicated = [table for table in tables if table not in fused]
    on_cpu_by_fbgemm = machines.device == "cpu" and (
        config.table_kernel == "fbgemm"
        or config.embedding_weight_precision != "fp32"
        or not shape.is_plain  # the trainer's own kernels have one table a feature, of one width
    )
    if fused and on_cpu_by_fbgemm and "adam" in config.table_optimizer:
        raise ConfigError(
            f"table_optimizer is {config.table_optimizer}, which fbgemm has for GPUs only, and {fused[0]} is "
            "sharded; on CPUs leave table_kernel at auto and embedding_weight_precision at fp32, take sgd, "
            "adagrad or rowwise_adagrad, or data_parallel"
        )
    if replicated and config.embedding_weight_precision != "fp32":
        raise ConfigError(
            f"embedding_weight_precision is {config.embedding_weight_precision}, but {replicated[0]} is "
            "data_parallel, which keeps fp32; take data_parallel out of sharding_types"
        )


def _check_communication(plan: ShardingPlan, config: TrainerConfig, machines: Machines) -> None:
    """Refuse int8 and fp8 for tables cut by rows: pieces are summed in transit, scaled bytes cannot be."""
    cut = [table for table, parameter in plan.plan[MODULE].items() if parameter.sharding_type in SPLITS_ROWS]
    for name in ("qcomm_forward_precision", "qcomm_backward_precision"):
        precision = getattr(config, name)
        if precision == "fp8" and machines.device == "cpu":
            raise ConfigError(f"{name} is fp8, which fbgemm has for GPUs only; take fp16, bf16 or int8")
        if cut and precision in ("int8", "fp8"):
            raise ConfigError(
                f"{name} is {precision}, but {cut[0]} is cut by rows, whose pieces are summed on their way; "
                "take fp16 or bf16, or keep row_wise, table_row_wise and grid_shard out of sharding_types"
            )


def shard(
    task: TrainTask, plan: ShardingPlan, config: TrainerConfig, world: World
) -> DistributedModelParallel:
    """Return the model with this rank's shards; with several ranks, DDP replicates the dense part."""
    output = handed_over(config, world.device)
    if config.pipeline == "prefetch":
        plan = _prefetching(plan)
    model = DistributedModelParallel(
        module=task,
        env=ShardingEnv.from_process_group(world.group),
        device=world.device,
        plan=plan,
        # Ids are checked when a dataset is opened, or batch by batch; a second check takes 0.4 ms of a step.
        sharders=[make_sharder(config, output, checks_ids=world.device.type == "cpu")],
        init_data_parallel=world.size > 1,
    )
    send_nothing_as(model, data_type_to_dtype(output))
    if config.deterministic:
        fix_order_of_sums(model)
    return model


def _prefetching(plan: ShardingPlan) -> ShardingPlan:
    """Return a plan whose caches can be filled ahead of a step; the plan that is saved says nothing of it."""
    changed = copy.deepcopy(plan)
    for parameter in changed.plan[MODULE].values():
        if parameter.compute_kernel == CACHING:
            given = parameter.cache_params or CacheParams()
            parameter.cache_params = dataclasses.replace(given, prefetch_pipeline=True)
    return changed


@contextmanager
def _without_remarks_on_replicas() -> Iterator[None]:
    """Suppress torchrec's warning, by the root logger, that replicated tables have no shards."""

    def keep(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Sharding spec not found")

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)


def needs_equal_batches(plan: ShardingPlan) -> bool:
    """Whether a table is cut by rows: its pieces are summed over ranks, which needs equal sizes on gloo."""
    return any(parameter.sharding_type in SPLITS_ROWS for parameter in plan.plan[MODULE].values())


def describe(plan: ShardingPlan) -> list[str]:
    """Return a header and one line per shard: table, sharding, kernel, rows, columns, rank."""
    lines = [f"{'table':<12} {'sharding':<14} {'kernel':<18} {'rows':>21} {'columns':>11} {'rank':>4}"]
    for name, parameter in plan.plan[MODULE].items():
        start = f"{name:<12} {parameter.sharding_type:<14} {parameter.compute_kernel:<18}"
        if parameter.sharding_spec is None:
            lines.append(f"{start} {'all':>21} {'all':>11} {'all':>4}")
            continue
        for piece in parameter.sharding_spec.shards:
            rows, columns = (
                f"{first}..{first + size - 1}"
                for first, size in zip(piece.shard_offsets, piece.shard_sizes, strict=True)
            )
            lines.append(f"{start} {rows:>21} {columns:>11} {piece.placement.rank():>4}")
    return lines
