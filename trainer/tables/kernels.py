"""The table pieces in this rank's embedding kernels, for every sharding type.

The names in torchrec's state_dict differ by sharding type, and the offsets of its optimizer states are wrong
for tables cut by columns. So pieces are read from the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of a table in this rank's memory; a GPU's cache may have newer values of its rows."""

    table: str
    weight: Tensor  # [rows, columns]
    states: tuple[Tensor, ...]  # the fused optimizer's; empty for a replicated table
    offsets: tuple[int, int]  # of the first row and column
    replicated: bool
    gradient_of: Tensor | None = None  # for replicas: the flat parameter whose gradient contains the table's
    gradient_start: int = 0  # the table's first element in it


def sharded_tables(model: nn.Module) -> ShardedEmbeddingBagCollection:
    """Return a model's sharded collection; it has exactly one."""
    return next(part for part in model.modules() if isinstance(part, ShardedEmbeddingBagCollection))


def takes_weights(model: nn.Module) -> bool:
    """Whether a model's ids have weights."""
    return bool(sharded_tables(model)._is_weighted)  # noqa: SLF001 - torchrec has no public way


def table_pieces(model: nn.Module) -> Iterator[Piece]:
    """Yield this rank's pieces, kernel by kernel."""
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
    """Replace each kernel by the result of `replace`, unless it is None; the memory must stay the same.

    torchrec's optimizer still passes the learning rate to the original kernel.
    """
    for holder in _holders(model):
        other = replace(holder.emb_module)
        if other is not None:
            holder._emb_module = other  # noqa: SLF001 - torchrec has no public way


def set_iteration(model: nn.Module, step: int) -> None:
    """Pass the number of steps done to the kernels: Adam's bias correction depends on it.

    fbgemm counts look-ups, of evaluations too, in the host's memory and for checkpoints.
    """
    for kernel, _ in table_kernels(model):
        for name in ("iter", "iter_cpu"):
            counter = getattr(kernel, name, None)
            if counter is not None:
                counter.fill_(step)


def write_back_caches(model: nn.Module) -> None:
    """Write the rows in GPU caches back to the memory of `table_pieces`; call it before reading that memory.

    With fused_uvm_caching, an update changes a row in the cache only, until the row is evicted or flushed.
    Kernels without a cache have nothing to flush, or no such method. The optimizer's states have no cache:
    fbgemm makes them with `cacheable=False`, and updates them in the memory of `table_pieces`.
    """
    for kernel, _ in table_kernels(model):
        flush = getattr(kernel, "flush", None)
        if flush is not None:
            flush()


def empty_caches(model: nn.Module) -> None:
    """Discard the rows in GPU caches; call it after writing to the memory of `table_pieces`.

    Otherwise a look-up would find the old row in the cache, and its eviction would overwrite the new one.
    No look-up may be prepared then that holds places in the cache: see `forget_prefetched`.
    """
    for kernel, _ in table_kernels(model):
        reset = getattr(kernel, "reset_cache_states", None)
        if reset is not None:
            reset()


def forget_prefetched(model: nn.Module) -> None:
    """Forget the look-ups that fbgemm's `prefetch` has prepared ahead of their step, and empty those caches.

    Otherwise the next look-up, of other ids, would take their places in the cache. Rows that were looked up
    without a step, as in an evaluation, would also stay locked there.
    """
    for kernel, _ in table_kernels(model):
        if not getattr(kernel, "prefetch_pipeline", False):
            continue
        kernel.flush()
        kernel.reset_cache_states()
        for name in ("timesteps_prefetched", "lxu_cache_locations_list", "prefetched_info_list"):
            getattr(kernel, name, []).clear()
        locks = getattr(kernel, "lxu_cache_locking_counter", None)
        if locks is not None:
            locks.zero_()


def send_nothing_as(model: nn.Module, dtype: torch.dtype) -> None:
    """Set the type in which a rank without tables sends its no vectors; it must be that of the other ranks.

    torchrec has fp32 there, and a rank allocates what it receives in the type of what it sends.
    """
    for lookup in sharded_tables(model)._lookups:  # noqa: SLF001 - torchrec shows them nowhere else
        inner = getattr(lookup, "module", lookup)
        nothing = getattr(inner, "_dummy_embs_tensor", None)
        if nothing is not None and nothing.dtype != dtype:
            inner._dummy_embs_tensor = torch.empty(0, dtype=dtype, device=nothing.device, requires_grad=True)  # noqa: SLF001 - as above


def table_kernels(model: nn.Module) -> Iterator[tuple[Any, list[Any]]]:
    """Yield every embedding kernel of this rank with the configurations of its tables."""
    for holder in _holders(model):
        yield holder.emb_module, holder._config.embedding_tables  # noqa: SLF001 - torchrec shows them nowhere else


def kernel_features(model: nn.Module) -> list[list[str]]:
    """Return the features of each kernel of this rank, in its order."""
    return [list(holder._config.feature_names()) for holder in _holders(model)]  # noqa: SLF001 - as above


def averaging_parts(model: nn.Module) -> list[DistributedDataParallel]:
    """Return every DDP of a model; those of replicated tables are in a plain list, which modules() skips."""
    parts = [*model.modules(), *sharded_tables(model)._lookups]  # noqa: SLF001 - torchrec shows them nowhere else
    return [part for part in parts if isinstance(part, DistributedDataParallel)]


def _holders(model: nn.Module) -> Iterator[Any]:
    for lookup in sharded_tables(model)._lookups:  # noqa: SLF001 - torchrec shows its kernels nowhere else
        yield from getattr(lookup, "module", lookup)._emb_modules  # noqa: SLF001 - as above; DDP wraps replicas
