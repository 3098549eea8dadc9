"""The model's state under canonical names, independent of ranks, plans and sharding types.

tables/<table>/weight             [rows, dim]    this rank's pieces; the whole table if it is replicated
tables/<table>/<optimizer state>  [rows] or [rows, dim], likewise (TABLE_STATES)
dense/<parameter>                                replicated
dense_optimizer/<parameter>/<state>              replicated; steps are 0-d tensors
dense_gradient/<parameter>                       replicated; only with gradient accumulation
loss_scale/...                                   replicated; only with fp16

An optimizer with one number per row never trains a table whose rows are split (base.table_optimizers).
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torchrec.distributed.model_parallel import get_unwrapped_module

from trainer.base.entry import Entry, TensorShard
from trainer.base.table_optimizers import TABLE_STATES
from trainer.models.model import seeded_generator
from trainer.tables.kernels import Piece, sharded_tables, table_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.tables.optim import DenseUpdate
    from trainer.tables.replicas import ReplicaOptimizer
    from trainer.tables.touched import TouchTracker

INIT_BLOCK_ROWS = 16384  # a table's rows are drawn in blocks of this size, each with its own generator


def gather_state(
    model: DistributedModelParallel, update: DenseUpdate, touched: TouchTracker | None = None
) -> dict[str, Entry]:
    """Return this rank's tensors as live views: writing to them changes the model."""
    return {
        **dict(_table_entries(model, update.replicas, touched)),
        **dict(_dense_entries(model)),
        **dict(_optimizer_entries(model, update.optimizer)),
        **dict(_update_entries(model, update)),
    }


def table_weights(model: DistributedModelParallel) -> dict[str, Entry]:
    """Return this rank's shards of every table's weights, by table."""
    pieces = list(table_pieces(model))
    return {
        table: _table_entry(shape, [(piece, piece.weight) for piece in pieces if piece.table == table])
        for table, shape in _table_shapes(model).items()
    }


class InitialTables:
    """The initial tables, drawn from (seed, table, row) only, so they are equal for any plan and world size.

    Uniform in +-scale/sqrt(rows), which is torchrec's default at scale 1; optimizer states start at 0. A
    block of rows is always drawn whole, even if a shard needs only a part.
    """

    def __init__(
        self, tables: Mapping[str, Entry], states: Iterable[Entry], *, seed: int, scale: float
    ) -> None:
        self._tables = tables
        self._states = tuple(states)
        self._seed = seed
        self._scale = scale

    @cached_property
    def identity(self) -> str:
        """Identifies the initial state; differs if this version of torch draws other random numbers."""
        table = min(self._tables, default="")
        shape = self._tables[table].shape if self._tables else (0, 0)
        drawn = _draw_block(seed=self._seed, table=table, shape=shape, bound=1.0, block=0)
        checksum = zlib.crc32(drawn.numpy())
        return f"uniform/seed={self._seed}/scale={self._scale}/crc32={checksum:08x}"

    @torch.no_grad()
    def make(self) -> None:
        """Set every row, in place."""
        for table, entry in self._tables.items():
            bound = self._scale / math.sqrt(entry.shape[0])
            for shard in entry.shards:
                _fill(shard, seed=self._seed, table=table, shape=entry.shape, bound=bound)
        for entry in self._states:
            for shard in entry.shards:
                shard.tensor.zero_()


def _fill(shard: TensorShard, *, seed: int, table: str, shape: tuple[int, ...], bound: float) -> None:
    first, left = shard.offsets
    stop = first + shard.tensor.shape[0]
    for block in range(first // INIT_BLOCK_ROWS, -(-stop // INIT_BLOCK_ROWS)):
        start = block * INIT_BLOCK_ROWS
        values = _draw_block(seed=seed, table=table, shape=shape, bound=bound, block=block)
        low, high = max(first, start), min(stop, start + len(values))
        part = values[low - start : high - start, left : left + shard.tensor.shape[1]]
        shard.tensor[low - first : high - first].copy_(part)


def _draw_block(*, seed: int, table: str, shape: tuple[int, ...], bound: float, block: int) -> Tensor:
    rows, width = shape
    size = min(INIT_BLOCK_ROWS, rows - block * INIT_BLOCK_ROWS)
    generator = seeded_generator(seed, "tables", table, block)
    return torch.empty(max(size, 0), width).uniform_(-bound, bound, generator=generator)


def _table_entries(
    model: DistributedModelParallel, replicas: ReplicaOptimizer, touched: TouchTracker | None
) -> Iterator[tuple[str, Entry]]:
    pieces = list(table_pieces(model))
    states = TABLE_STATES[replicas.kind]
    for table, weight in table_weights(model).items():
        mine = [piece for piece in pieces if piece.table == table]
        yield f"tables/{table}/weight", _stamped(weight, mine, touched)
        for index, state in enumerate(states):
            held = [(piece, (piece.states or replicas.states[table])[index]) for piece in mine]
            entry = _row_entry(weight.shape[0], held) if state.one_a_row else _table_entry(weight.shape, held)
            yield f"tables/{table}/{state.name}", _stamped(entry, mine, touched)


def _stamped(entry: Entry, pieces: list[Piece], touched: TouchTracker | None) -> Entry:
    if touched is None:
        return entry
    pairs = zip(entry.shards, pieces, strict=True)
    return replace(entry, shards=tuple(replace(shard, stamps=touched.of(piece)) for shard, piece in pairs))


def _table_shapes(model: DistributedModelParallel) -> dict[str, tuple[int, int]]:
    configs = sharded_tables(model)._embedding_bag_configs  # noqa: SLF001 - torchrec keeps them to itself
    return {config.name: (config.num_embeddings, config.embedding_dim) for config in configs}


def _table_entry(shape: tuple[int, ...], held: list[tuple[Piece, Tensor]]) -> Entry:
    shards = tuple(TensorShard(tensor.view(piece.weight.shape), piece.offsets) for piece, tensor in held)
    return Entry(shape=shape, shards=shards, replicated=any(piece.replicated for piece, _ in held))


def _row_entry(rows: int, held: list[tuple[Piece, Tensor]]) -> Entry:
    shards = tuple(TensorShard(tensor.view(-1), (piece.offsets[0],)) for piece, tensor in held)
    return Entry(shape=(rows,), shards=shards, replicated=any(piece.replicated for piece, _ in held))


def _dense_entries(model: DistributedModelParallel) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        yield f"dense/{name}", _replicated_entry(parameter.detach())


def _optimizer_entries(model: DistributedModelParallel, optimizer: Optimizer) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        for key, value in sorted(optimizer.state[parameter].items()):
            if isinstance(value, Tensor):
                yield f"dense_optimizer/{name}/{key}", _replicated_entry(value)


def _update_entries(model: DistributedModelParallel, update: DenseUpdate) -> Iterator[tuple[str, Entry]]:
    """Yield the state between gradients and the optimizer: accumulated gradients, and the loss scale."""
    if update.scaler.active:
        yield "loss_scale/scale", _replicated_entry(update.scaler.scale)
        yield "loss_scale/good_steps", _replicated_entry(update.scaler.good_steps)
    if update.every > 1:
        names = [name for name, _ in _dense_parameters(model)]
        for name, tensor in zip(names, update.collected, strict=True):
            yield f"dense_gradient/{name}", _replicated_entry(tensor)
        yield "dense_gradient_steps", _replicated_entry(update.collected_steps)


def _dense_parameters(model: DistributedModelParallel) -> Iterator[tuple[str, Tensor]]:
    yield from get_unwrapped_module(model).model.dense.named_parameters()


def _replicated_entry(tensor: Tensor) -> Entry:
    return Entry(
        shape=tuple(tensor.shape), shards=(TensorShard(tensor, (0,) * tensor.dim()),), replicated=True
    )
