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
from trainer.sharding import drawing
from trainer.tables.kernels import Piece, sharded_tables, table_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.tables.optim import DenseUpdate
    from trainer.tables.replicas import ReplicaOptimizer
    from trainer.tables.touched import TouchTracker

CHECKED_ROWS = 16384  # of a table, from which the checksum of an initial state is made


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

    Optimizer states start at 0. How tables are drawn has versions (`drawing`), which checkpoints name.
    """

    def __init__(
        self,
        tables: Mapping[str, Entry],
        states: Iterable[Entry],
        *,
        seed: int,
        scale: float,
        version: int = drawing.NEWEST,
    ) -> None:
        self._tables = tables
        self._states = tuple(states)
        self._seed = seed
        self._scale = scale
        self._version = version

    @cached_property
    def identity(self) -> str:
        """Identifies the initial state.

        Of version 1, it differs if this version of torch draws other random numbers.
        """
        table = min(self._tables, default="")
        shape = self._tables[table].shape if self._tables else (0, 0)
        first = torch.empty(min(shape[0], CHECKED_ROWS), shape[1])
        bound = math.sqrt(max(shape[0], 1))  # as scale, it makes the bound 1
        self._draw(first, table, shape, (0, 0), bound)
        checksum = zlib.crc32(first.numpy())
        kind = "uniform" if self._version == 1 else f"uniform-{self._version}"
        return f"{kind}/seed={self._seed}/scale={self._scale}/crc32={checksum:08x}"

    def known_as(self, identity: str) -> InitialTables | None:
        """Return these tables as drawn by the version with this identity; None if no version has it."""
        for version in reversed(drawing.VERSIONS):
            other = InitialTables(
                self._tables, self._states, seed=self._seed, scale=self._scale, version=version
            )
            if other.identity == identity:
                return other
        return None

    @torch.no_grad()
    def make(self) -> None:
        """Set every row, in place."""
        for table, entry in self._tables.items():
            for shard in entry.shards:
                self._draw(shard.tensor.detach(), table, entry.shape, shard.offsets, self._scale)
        for entry in self._states:
            for shard in entry.shards:
                shard.tensor.zero_()

    def _draw(
        self, target: Tensor, table: str, shape: tuple[int, ...], offsets: tuple[int, ...], scale: float
    ) -> None:
        drawing.draw(
            target,
            version=self._version,
            seed=self._seed,
            table=table,
            shape=shape,
            offsets=offsets,
            scale=scale,
        )


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
