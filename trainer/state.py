"""The model's state under canonical names, which tell nothing of ranks, plans or sharding types.

tables/<table>/weight             [rows, dim]    this rank's pieces
tables/<table>/rowwise_adagrad    [rows]         sums of squared gradients, likewise
dense/<parameter>                                replicated
dense_optimizer/<parameter>/<state>              replicated; steps are 0-d tensors
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchrec.distributed.model_parallel import get_unwrapped_module

from trainer.checkpoint.entry import Entry, Shard
from trainer.model import seeded_generator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

ACCUMULATOR = "momentum1"  # the kernels' name of row-wise Adagrad's sums
TABLE_MARK = ".embedding_bags."  # stands before a table's name in torchrec's state
INIT_BLOCK_ROWS = 16384  # a table's rows are drawn in blocks of this size, each with its own generator


def gather_state(model: DistributedModelParallel, dense_optimizer: Optimizer) -> dict[str, Entry]:
    """Collect what this rank holds, as live views: writing to them changes the model."""
    return {
        **dict(_table_entries(model)),
        **dict(_dense_entries(model)),
        **dict(_optimizer_entries(model, dense_optimizer)),
    }


def table_weights(model: DistributedModelParallel) -> dict[str, Entry]:
    """This rank's shards of every table's weights, by table."""
    return {name.split("/")[1]: entry for name, entry in _table_entries(model) if name.endswith("/weight")}


@torch.no_grad()
def initialise_tables(model: DistributedModelParallel, *, seed: int, scale: float) -> None:
    """Set every row from (seed, table, row) alone: any plan on any number of ranks starts the same.

    Uniform in +-scale/sqrt(rows), torchrec's own choice at scale 1. A block of rows is drawn whole
    where a shard needs part of it.
    """
    for table, entry in table_weights(model).items():
        bound = scale / math.sqrt(entry.shape[0])
        for shard in entry.shards:
            _fill(shard, seed=seed, table=table, shape=entry.shape, bound=bound)


def _fill(shard: Shard, *, seed: int, table: str, shape: tuple[int, ...], bound: float) -> None:
    rows, width = shape
    first, left = shard.offsets
    stop = first + shard.tensor.shape[0]
    for block in range(first // INIT_BLOCK_ROWS, -(-stop // INIT_BLOCK_ROWS)):
        start = block * INIT_BLOCK_ROWS
        size = min(INIT_BLOCK_ROWS, rows - start)
        values = torch.empty(size, width).uniform_(
            -bound, bound, generator=seeded_generator(seed, "tables", table, block)
        )
        low, high = max(first, start), min(stop, start + size)
        part = values[low - start : high - start, left : left + shard.tensor.shape[1]]
        shard.tensor[low - first : high - first].copy_(part)


def _table_entries(model: DistributedModelParallel) -> Iterator[tuple[str, Entry]]:
    accumulators: dict[str, Entry] = {}  # of the tables that have a piece on this rank
    for name, states in model.fused_optimizer.state_dict()["state"].items():
        table = _table_of(name)
        accumulators[table] = _sharded_entry(states[f"{table}.{ACCUMULATOR}"])
    for name, value in model.state_dict().items():
        if TABLE_MARK in name:
            table, weight = _table_of(name), _sharded_entry(value)
            yield f"tables/{table}/weight", weight
            nothing = Entry(shape=weight.shape[:1], shards=())
            yield f"tables/{table}/rowwise_adagrad", accumulators.get(table, nothing)


def _table_of(name: str) -> str:
    return name.split(TABLE_MARK)[1].removesuffix(".weight")


def _dense_entries(model: DistributedModelParallel) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        yield f"dense/{name}", _replicated_entry(parameter.detach())


def _optimizer_entries(model: DistributedModelParallel, optimizer: Optimizer) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        for key, value in sorted(optimizer.state[parameter].items()):
            if isinstance(value, Tensor):
                yield f"dense_optimizer/{name}/{key}", _replicated_entry(value)


def _dense_parameters(model: DistributedModelParallel) -> Iterator[tuple[str, Tensor]]:
    yield from get_unwrapped_module(model).model.dense.named_parameters()


def _replicated_entry(tensor: Tensor) -> Entry:
    return Entry(shape=tuple(tensor.shape), shards=(Shard(tensor, (0,) * tensor.dim()),), replicated=True)


def _sharded_entry(value: Any) -> Entry:  # noqa: ANN401 - ShardedTensor is seen as Any
    shards = tuple(
        Shard(piece.tensor.detach(), tuple(piece.metadata.shard_offsets)) for piece in value.local_shards()
    )
    return Entry(shape=tuple(value.metadata().size), shards=shards)
