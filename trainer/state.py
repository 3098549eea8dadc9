"""The model's state under canonical names, which tell nothing of ranks, plans or sharding types.

tables/<table>/weight             [rows, dim]    this rank's pieces; all of it where it is replicated
tables/<table>/<optimizer state>  [rows] or [rows, dim], likewise (TABLE_STATES)
dense/<parameter>                                replicated
dense_optimizer/<parameter>/<state>              replicated; steps are 0-d tensors
dense_gradient/<parameter>, loss_scale/...       replicated; only with accumulation, with fp16

One exception: optimizers with one number a row keep one for EACH piece of a row that is cut by
columns; the state is then [rows, pieces], and only loads under a plan that cuts the same way.
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

from trainer.checkpoint.entry import Entry, Shard
from trainer.kernels import Piece, sharded_tables, table_pieces
from trainer.model import seeded_generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.optim import DenseUpdate
    from trainer.replicas import ReplicaOptimizer
    from trainer.touched import TouchTracker

TABLE_STATES = {  # by optimizer: the names of its states, and whether they have one number a row
    "sgd": (),
    "adagrad": (("adagrad", False),),
    "rowwise_adagrad": (("rowwise_adagrad", True),),
    "adam": (("exp_avg", False), ("exp_avg_sq", False)),
    "partial_rowwise_adam": (("exp_avg", False), ("exp_avg_sq", True)),
}
INIT_BLOCK_ROWS = 16384  # a table's rows are drawn in blocks of this size, each with its own generator


def gather_state(
    model: DistributedModelParallel, update: DenseUpdate, touched: TouchTracker | None = None
) -> dict[str, Entry]:
    """Collect what this rank holds, as live views: writing to them changes the model."""
    return {
        **dict(_table_entries(model, update.replicas, touched)),
        **dict(_dense_entries(model)),
        **dict(_optimizer_entries(model, update.optimizer)),
        **dict(_update_entries(model, update)),
    }


def table_weights(model: DistributedModelParallel) -> dict[str, Entry]:
    """This rank's shards of every table's weights, by table."""
    pieces = list(table_pieces(model))
    return {
        table: _table_entry(shape, [(piece, piece.weight) for piece in pieces if piece.table == table])
        for table, shape in _table_shapes(model).items()
    }


class InitialTables:
    """Every row drawn from (seed, table, row) alone: any plan on any number of ranks starts the same.

    Uniform in +-scale/sqrt(rows), torchrec's own choice at scale 1; optimizer states start at 0. A
    block of rows is drawn whole where a shard needs part of it.
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
        """Tells one initial state from another, also where a version of torch draws otherwise."""
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


def _fill(shard: Shard, *, seed: int, table: str, shape: tuple[int, ...], bound: float) -> None:
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
    names = TABLE_STATES[replicas.kind]
    for table, weight in table_weights(model).items():
        mine = [piece for piece in pieces if piece.table == table]
        yield f"tables/{table}/weight", _stamped(weight, mine, touched)
        lefts = _column_cuts(model, table)
        for index, (name, row_wise) in enumerate(names):
            held = [(piece, (piece.states or replicas.states[table])[index]) for piece in mine]
            entry = _row_entry(weight.shape[0], lefts, held) if row_wise else _table_entry(weight.shape, held)
            yield f"tables/{table}/{name}", _stamped(entry, mine, touched)


def _stamped(entry: Entry, pieces: list[Piece], touched: TouchTracker | None) -> Entry:
    if touched is None:
        return entry
    pairs = zip(entry.shards, pieces, strict=True)
    return replace(entry, shards=tuple(replace(shard, stamps=touched.of(piece)) for shard, piece in pairs))


def _table_shapes(model: DistributedModelParallel) -> dict[str, tuple[int, int]]:
    configs = sharded_tables(model)._embedding_bag_configs  # noqa: SLF001 - torchrec keeps them to itself
    return {config.name: (config.num_embeddings, config.embedding_dim) for config in configs}


def _column_cuts(model: DistributedModelParallel, table: str) -> list[int]:
    """The first columns of a table's pieces, in order: [0] if it is not cut by columns."""
    spec = sharded_tables(model).module_sharding_plan[table].sharding_spec
    return sorted({piece.shard_offsets[1] for piece in spec.shards}) if spec is not None else [0]


def _table_entry(shape: tuple[int, ...], held: list[tuple[Piece, Tensor]]) -> Entry:
    shards = tuple(Shard(tensor.view(piece.weight.shape), piece.offsets) for piece, tensor in held)
    return Entry(shape=shape, shards=shards, replicated=any(piece.replicated for piece, _ in held))


def _row_entry(rows: int, lefts: list[int], held: list[tuple[Piece, Tensor]]) -> Entry:
    if len(lefts) == 1:
        shards = tuple(Shard(tensor.view(-1), (piece.offsets[0],)) for piece, tensor in held)
        return Entry(shape=(rows,), shards=shards, replicated=any(piece.replicated for piece, _ in held))
    shards = tuple(
        Shard(tensor.view(-1, 1), (piece.offsets[0], lefts.index(piece.offsets[1]))) for piece, tensor in held
    )
    return Entry(shape=(rows, len(lefts)), shards=shards)


def _dense_entries(model: DistributedModelParallel) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        yield f"dense/{name}", _replicated_entry(parameter.detach())


def _optimizer_entries(model: DistributedModelParallel, optimizer: Optimizer) -> Iterator[tuple[str, Entry]]:
    for name, parameter in _dense_parameters(model):
        for key, value in sorted(optimizer.state[parameter].items()):
            if isinstance(value, Tensor):
                yield f"dense_optimizer/{name}/{key}", _replicated_entry(value)


def _update_entries(model: DistributedModelParallel, update: DenseUpdate) -> Iterator[tuple[str, Entry]]:
    """What lies between gradients and the optimizer: half-collected gradients, the loss's scale."""
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
    return Entry(shape=tuple(tensor.shape), shards=(Shard(tensor, (0,) * tensor.dim()),), replicated=True)
