"""Synthetic batches in memory, for benchmarks in which reading must cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.data.batch import Batch
from trainer.data.stream import ShardArrays

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from trainer.base.config import TrainerConfig


class SyntheticStream:
    """An endless cycle over a few synthetic batches; equal seeds give equal batches."""

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
        self.batches = tuple(
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
            yield from self.batches


def _uniform_ids(rows: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, rows, (size,), generator=generator, dtype=torch.int32)


def _zipf_ids(rows: int, size: int, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(size, generator=generator, dtype=torch.float64)
    ids = torch.pow(float(rows + 1), uniform) - 1.0  # the inverse of log(id + 1) / log(rows + 1)
    return ids.to(torch.int32).clamp_(0, rows - 1)


POOL_ROWS = 65_536  # samples in memory, repeated without end
TRAIN_ROWS = 1 << 30
CRITEO_DENSE, CRITEO_SPARSE = 13, 26
DEFAULT_ROWS = 100_000  # of every table


class _MadeUp:
    """Random samples in Criteo's shape, of which each of many shards is the same."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.dense_features = tuple(f"I{index + 1}" for index in range(CRITEO_DENSE))
        self.sparse_features = tuple(f"C{index + 1}" for index in range(len(sizes)))
        self.num_embeddings = dict(zip(self.sparse_features, sizes, strict=True))
        self.digest = f"made-up-2-{'-'.join(map(str, sizes))}"
        (pool,) = SyntheticStream(
            CRITEO_DENSE, sizes, POOL_ROWS, seed=0, num_batches_in_memory=1, zipf=True
        ).batches
        self._pool = ShardArrays(
            labels=pool.labels.byte().numpy(), dense=pool.dense.numpy(), sparse=pool.sparse.numpy()
        )

    def arrays(self, split: str) -> Sequence[ShardArrays]:
        """See trainer.data.formats.loader.ArrayDataset."""
        return (self._pool,) * (TRAIN_ROWS // POOL_ROWS if split == "train" else 1)


def made_up(config: TrainerConfig) -> _MadeUp:
    """Return synthetic samples: `--dataset trainer.data.synthetic:made_up --num_iterations 1000`.

    For benchmarks of a machine. Tables have the sizes of `num_embeddings_per_feature` or `num_embeddings`,
    otherwise 100,000 rows; the training split has 2^30 rows, so set num_iterations.
    """
    sizes = config.num_embeddings_per_feature or (config.num_embeddings or DEFAULT_ROWS,) * CRITEO_SPARSE
    return _MadeUp(sizes)
