"""A model's state cut in different ways, for tests of what saves, loads and hashes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.checkpoint import Entry, State, TensorShard

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place


def global_tensors(seed: int = 1) -> dict[str, torch.Tensor]:
    """Tables, their optimizer's sums and a dense part, of several types and dimensions."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "tables/a/weight": torch.randn(300, 8, generator=generator),
        "tables/a/sums": torch.rand(300, generator=generator),
        "tables/b/weight": torch.randn(50, 8, generator=generator).to(torch.bfloat16),
        "tables/c/weight": torch.randn(64, 6, generator=generator),
        "dense/kernel": torch.randn(3, 4, 5, generator=generator),
        "dense/step": torch.tensor(seed, dtype=torch.int64),
    }


def whole(tensors: dict[str, torch.Tensor]) -> State:
    """The state of a single rank."""
    return {
        name: Entry(tuple(tensor.shape), (TensorShard(tensor, (0,) * tensor.ndim),))
        for name, tensor in tensors.items()
    }


def cut(place: Place, tensors: dict[str, torch.Tensor]) -> State:
    """Table a by rows, b whole on the last rank, c by columns, the dense part on every rank."""
    state: dict[str, Entry] = {}
    for name, tensor in tensors.items():
        shape, start = tuple(tensor.shape), (0,) * tensor.ndim
        axis = {"a": 0, "c": 1}.get(name.split("/")[1])
        if axis is not None:
            low = shape[axis] * place.rank // place.world_size
            high = shape[axis] * (place.rank + 1) // place.world_size
            offsets = tuple(low if dimension == axis else 0 for dimension in range(tensor.ndim))
            state[name] = Entry(shape, (TensorShard(tensor.narrow(axis, low, high - low), offsets),))
        elif name.startswith("tables/b"):
            held = (TensorShard(tensor, start),) if place.rank == place.world_size - 1 else ()
            state[name] = Entry(shape, held)
        else:
            state[name] = Entry(shape, (TensorShard(tensor, start),), replicated=True)
    return state


def zeros_like(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of the same kinds, to be filled."""
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def same_bits(state: State, other: State) -> bool:
    """Whether every local shard is equal, bit for bit."""
    pairs = [
        (mine.tensor, theirs.tensor)
        for name, entry in state.items()
        for mine, theirs in zip(entry.shards, other[name].shards, strict=True)
    ]
    return bool(pairs) and all(torch.equal(mine, theirs) for mine, theirs in pairs)
