"""Batches made up in memory, for benchmarks in which reading must cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.data.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


class SyntheticStream:
    """An endless cycle over a few batches of made-up samples; the same seed gives the same ones."""

    def __init__(
        self,
        num_dense: int,
        num_embeddings: Sequence[int],
        batch_size: int,
        seed: int,
        num_batches_in_memory: int,
        *,
        world_size: int = 1,
        zipf: bool = False,
    ) -> None:
        """`zipf` draws ids with probability about 1 / (id + 1); otherwise all are equally likely."""
        generator = torch.Generator().manual_seed(seed)
        draw = _zipf_ids if zipf else _uniform_ids
        self._batches = tuple(
            Batch(
                dense=torch.rand((batch_size, num_dense), generator=generator),
                sparse=torch.stack([draw(rows, batch_size, generator) for rows in num_embeddings]),
                labels=torch.randint(0, 2, (batch_size,), generator=generator).float(),
                sample_ids=torch.arange(index * batch_size, (index + 1) * batch_size),
                global_size=batch_size * world_size,
            )
            for index in range(num_batches_in_memory)
        )

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield from self._batches


def _uniform_ids(rows: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, rows, (size,), generator=generator, dtype=torch.int32)


def _zipf_ids(rows: int, size: int, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(size, generator=generator, dtype=torch.float64)
    ids = torch.pow(float(rows + 1), uniform) - 1.0  # the inverse of log(id + 1) / log(rows + 1)
    return ids.to(torch.int32).clamp_(0, rows - 1)
