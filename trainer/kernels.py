"""The tables as this rank's embedding kernels hold them, whatever the sharding type.

torchrec's own state names differ by sharding type, and its optimizer states have invented offsets
where tables are cut by columns; the kernels themselves tell plainly what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of a table on this rank: live memory."""

    table: str
    weight: Tensor  # [rows, columns]
    states: tuple[Tensor, ...]  # the fused optimizer's; none where a table is replicated
    offsets: tuple[int, int]  # of the first row and column
    replicated: bool
    gradient_of: Tensor | None = None  # where replicated: the flat parameter whose gradient has the table's
    gradient_start: int = 0  # and where in it


def sharded_tables(model: nn.Module) -> ShardedEmbeddingBagCollection:
    """The one sharded collection of a model."""
    return next(part for part in model.modules() if isinstance(part, ShardedEmbeddingBagCollection))


def table_pieces(model: nn.Module) -> Iterator[Piece]:
    """What this rank holds, kernel by kernel."""
    for kernel, tables in table_kernels(model):
        weights = kernel.split_embedding_weights()
        if hasattr(kernel, "split_optimizer_states"):
            states = kernel.split_optimizer_states() or [()] * len(weights)
            for table, weight, state in zip(tables, weights, states, strict=True):
                first, left = table.local_metadata.shard_offsets
                yield Piece(table.name, weight, tuple(state), (first, left), replicated=False)
        else:
            start = 0
            for table, weight in zip(tables, weights, strict=True):
                yield Piece(
                    table.name,
                    weight,
                    (),
                    (0, 0),
                    replicated=True,
                    gradient_of=kernel.weights,
                    gradient_start=start,
                )
                start += weight.numel()


def replace_kernels(model: nn.Module, replace: Callable[[Any], nn.Module | None]) -> None:
    """Put what `replace` makes of a kernel in its place; None leaves it. The memory must stay the same.

    torchrec's optimizer goes on telling the learning rate to the kernel that was there.
    """
    for holder in _holders(model):
        other = replace(holder.emb_module)
        if other is not None:
            holder._emb_module = other  # noqa: SLF001 - torchrec has no public way


def set_iteration(model: nn.Module, step: int) -> None:
    """Tell the kernels how many steps were done: Adam's bias correction depends on it."""
    for kernel, _ in table_kernels(model):
        counter = getattr(kernel, "iter", None)
        if counter is not None:
            counter.fill_(step)


def table_kernels(model: nn.Module) -> Iterator[tuple[Any, list[Any]]]:
    """Every embedding kernel of this rank with the configurations of its tables."""
    for holder in _holders(model):
        yield holder.emb_module, holder._config.embedding_tables  # noqa: SLF001 - torchrec shows them nowhere else


def averaging_parts(model: nn.Module) -> list[DistributedDataParallel]:
    """Every DDP of a model: those of replicated tables are in a plain list, which modules() passes over."""
    parts = [*model.modules(), *sharded_tables(model)._lookups]  # noqa: SLF001 - torchrec shows them nowhere else
    return [part for part in parts if isinstance(part, DistributedDataParallel)]


def _holders(model: nn.Module) -> Iterator[Any]:
    for lookup in sharded_tables(model)._lookups:  # noqa: SLF001 - torchrec shows its kernels nowhere else
        yield from getattr(lookup, "module", lookup)._emb_modules  # noqa: SLF001 - as above; DDP wraps replicas
