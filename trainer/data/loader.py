"""A user's own loader: `--dataset module:factory`.

`factory(config)` is called once on every rank with the run's TrainerConfig and returns an object as
`UserDataset` below says; `module` is found as Python finds it (PYTHONPATH, the current folder). A
loader that can start at any position of an epoch sets `resumable` to True: its batches must then be
a pure function of (seed, epoch, start_sample), whatever the world size. One that cannot sets it to
False: the run works, but one that has a checkpoint is refused when it is started again, since it
would see some samples twice and others never.

    class Noise:
        dense_features, sparse_features = ("I1",), ("C1", "C2")
        num_embeddings = {"C1": 100, "C2": 50}
        resumable, digest = True, "noise-1"

        def rows(self, split): return 10_000 if split == "train" else 1_000

        def batches(self, split, *, batch_size, rank, world_size, seed, epoch, start_sample, shuffle):
            step = batch_size * world_size
            for start in range(start_sample, self.rows(split), step):
                size = min(step, self.rows(split) - start)
                ids = torch.arange(start + size * rank // world_size, start + size * (rank + 1) // world_size)
                yield Batch(dense=..., sparse=..., labels=..., sample_ids=ids, global_size=size)
"""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trainer.data.source import Source
from trainer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trainer.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.source import Reading

_NEEDED = ("dense_features", "sparse_features", "num_embeddings", "resumable", "digest", "rows", "batches")


class UserDataset(Protocol):
    """What a factory returns."""

    dense_features: Sequence[str]
    sparse_features: Sequence[str]
    num_embeddings: Mapping[str, int]  # rows that each feature's table needs
    resumable: bool
    digest: str  # names the data: a checkpoint made with another is refused

    def rows(self, split: str) -> int:
        """Samples of a split, "train" or "test", over all ranks."""
        ...

    def batches(
        self,
        split: str,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        epoch: int,
        start_sample: int,
        shuffle: bool,
    ) -> Iterable[Batch]:
        """One rank's share of every global step from `start_sample` to the end of the epoch.

        A step has G = batch_size * world_size samples, the last what is left; all ranks give equally
        many batches, and a rank's share may be empty.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Size:
    rows: int


class LoaderSource(Source):
    """A user's loader, held to its promises batch by batch."""

    def __init__(self, name: str, dataset: UserDataset) -> None:
        sizes = dataset.num_embeddings
        super().__init__(
            digest=f"{name}:{dataset.digest}",
            dense_features=dataset.dense_features,
            num_embeddings={feature: int(sizes[feature]) for feature in dataset.sparse_features},
            train=_Size(int(dataset.rows("train"))),
            test=_Size(int(dataset.rows("test"))),
            resumable=bool(dataset.resumable),
        )
        self.name = name
        self.dataset = dataset

    def _read(self, split: str, reading: Reading) -> Iterator[Batch]:
        """Exactly as many batches as the rows make, so that no rank waits for another."""
        rows = {"train": self.train, "test": self.test}[split].rows
        step = reading["batch_size"] * reading["world_size"]
        left = rows - reading["start_sample"]
        given = iter(self.dataset.batches(split, **reading))
        expected = math.ceil(left / step)
        for index in range(expected):
            batch = next(given, None)
            if batch is None:
                raise DataError(
                    f"the loader {self.name} ended after {index} batches of {split}; {rows} rows in steps of "
                    f"{step} samples from row {reading['start_sample']} on make {expected}"
                )
            self._check(batch, min(step, left - index * step))
            yield batch

    def _check(self, batch: Batch, global_size: int) -> None:
        size = len(batch)
        wanted = {
            "dense": (torch.float32, (size, len(self.dense_features))),
            "sparse": (torch.int32, (len(self.sparse_features), size)),
            "labels": (torch.float32, (size,)),
            "sample_ids": (torch.int64, (size,)),
        }
        if batch.lengths is not None:  # several ids a sample, flat, feature by feature
            wanted["lengths"] = (torch.int32, (len(self.sparse_features), size))
            wanted["sparse"] = (torch.int32, (int(batch.lengths.sum()),))
        for name, (dtype, shape) in wanted.items():
            tensor = getattr(batch, name)
            if (tensor.dtype, tuple(tensor.shape)) != (dtype, shape):
                raise DataError(
                    f"the loader {self.name} gave {name} as {tensor.dtype} {list(tensor.shape)}; it must be "
                    f"{dtype} {list(shape)}"
                )
        if batch.global_size != global_size:
            raise DataError(
                f"the loader {self.name} gave a batch of global_size {batch.global_size}; this step has "
                f"{global_size} samples over all ranks"
            )


def open_loader(name: str, config: TrainerConfig) -> LoaderSource:
    """Import and call a factory; what it lacks is told."""
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise ConfigError(f"dataset is {name!r}; it must be MODULE:FACTORY, as in my_package.data:make")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"dataset {name}: {error}; the module is looked for on PYTHONPATH and here"
        ) from error
    dataset: Any = factory(config)
    missing = [attribute for attribute in _NEEDED if not hasattr(dataset, attribute)]
    if missing:
        raise ConfigError(
            f"dataset {name}: what the factory returned lacks {', '.join(missing)}; trainer/data/loader.py "
            "says what a loader must have"
        )
    if absent := sorted(set(dataset.sparse_features) - set(dataset.num_embeddings)):
        raise ConfigError(f"dataset {name}: num_embeddings lacks {', '.join(absent)}")
    return LoaderSource(name, dataset)
