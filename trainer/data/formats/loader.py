"""A user's own loader: `--dataset module:factory`.

`factory(config)` is called once on every rank with the run's TrainerConfig and returns an object with the
attributes of `UserDataset` below; `module` is imported from PYTHONPATH or the current folder. A loader that
can start at any position of an epoch sets `resumable` to True: its batches must then be a pure function of
(seed, epoch, start_sample), for any world size. A loader that cannot do this sets it to False: such a run
cannot be resumed, and is refused if a checkpoint exists, because it would train on some samples twice and on
others never.

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

Samples may have weights (`Batch.weights`), and one label each: several come from a prepared dataset.

A loader whose rows are in arrays, in memory or mapped, has `arrays(split)` in place of `resumable`, `rows`
and `batches`; see ArrayDataset. It is read as files are: shuffled, by several ranks, resumable, and on GPUs
copied as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trainer.base.errors import ConfigError, DatasetError
from trainer.base.user_code import import_named
from trainer.data.source import ArrayParts, ArraySource, SampleSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trainer.base.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.source import EpochPart
    from trainer.data.stream import ShardArrays

_NEEDED = ("dense_features", "sparse_features", "num_embeddings", "resumable", "digest", "rows", "batches")
_OF_BATCHES = ("resumable", "rows", "batches")  # not needed where rows are in arrays


class UserDataset(Protocol):
    """The object that a factory returns."""

    dense_features: Sequence[str]
    sparse_features: Sequence[str]
    num_embeddings: Mapping[str, int]  # rows that each feature's table needs
    resumable: bool
    digest: str  # identifies the data: a checkpoint with another digest is refused

    def rows(self, split: str) -> int:
        """Return the number of samples of a split, "train" or "test", over all ranks."""
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
        """Yield one rank's share of every global step from `start_sample` to the end of the epoch.

        A step has G = batch_size * world_size samples; the last step has the rest. All ranks must yield the
        same number of batches; a rank's share may be empty.
        """
        ...


class ArrayDataset(Protocol):
    """The object that a factory returns whose rows are in arrays."""

    dense_features: Sequence[str]
    sparse_features: Sequence[str]
    num_embeddings: Mapping[str, int]  # rows that each feature's table needs
    digest: str  # identifies the data: a checkpoint with another digest is refused

    def arrays(self, split: str) -> Sequence[ShardArrays]:
        """Return the rows of a split, "train" or "test", in order; all ranks must return the same.

        Labels are numbers [rows], 0 or 1; dense float32 [rows, features]; sparse int32 [features, rows], one
        id each; weights, if all parts have them, float32 [rows].
        """
        ...


@dataclass(frozen=True, slots=True)
class _Size:
    rows: int


class LoaderSource(SampleSource):
    """A user's loader; every batch is checked against the protocol."""

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

    def _read(self, split: str, reading: EpochPart) -> Iterator[Batch]:
        """Yield exactly as many batches as the rows make: with fewer, the other ranks would wait forever."""
        rows = {"train": self.train, "test": self.test}[split].rows
        step = reading["batch_size"] * reading["world_size"]
        left = rows - reading["start_sample"]
        given = iter(self.dataset.batches(split, **reading))
        expected = math.ceil(left / step)
        for index in range(expected):
            batch = next(given, None)
            if batch is None:
                raise DatasetError(
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
        if batch.id_weights is not None:
            wanted["id_weights"] = (torch.float32, wanted["sparse"][1])
        if batch.weights is not None:
            wanted["weights"] = (torch.float32, (size,))
        for name, (dtype, shape) in wanted.items():
            tensor = getattr(batch, name)
            if (tensor.dtype, tuple(tensor.shape)) != (dtype, shape):
                raise DatasetError(
                    f"the loader {self.name} gave {name} as {tensor.dtype} {list(tensor.shape)}; it must be "
                    f"{dtype} {list(shape)}"
                )
        if batch.global_size != global_size:
            raise DatasetError(
                f"the loader {self.name} gave a batch of global_size {batch.global_size}; this step has "
                f"{global_size} samples over all ranks"
            )


def open_loader(name: str, config: TrainerConfig) -> SampleSource:
    """Import and call a factory; the error names what it lacks."""
    factory = import_named(name, "dataset", "my_package.data:make")
    dataset: Any = factory(config)
    has_arrays = hasattr(dataset, "arrays") and not hasattr(dataset, "batches")
    needed = [each for each in _NEEDED if not has_arrays or each not in _OF_BATCHES]
    missing = [attribute for attribute in needed if not hasattr(dataset, attribute)]
    if missing:
        raise ConfigError(
            f"dataset {name}: what the factory returned lacks {', '.join(missing)}; "
            "docs/own-loader.md describes a loader"
        )
    if absent := sorted(set(dataset.sparse_features) - set(dataset.num_embeddings)):
        raise ConfigError(f"dataset {name}: num_embeddings lacks {', '.join(absent)}")
    return _array_source(name, dataset) if has_arrays else LoaderSource(name, dataset)


def _array_source(name: str, dataset: ArrayDataset) -> ArraySource:
    features, dense = tuple(dataset.sparse_features), tuple(dataset.dense_features)
    splits: dict[str, ArrayParts] = {}
    for split in ("train", "test"):
        parts = tuple(dataset.arrays(split))
        for part in {id(part): part for part in parts}.values():
            _check_arrays(name, part, len(dense), len(features))
        is_weighted = bool(parts) and all(part.weights is not None for part in parts)
        splits[split] = ArrayParts(split, parts, len(dense), (1,) * len(features), is_weighted=is_weighted)
    return ArraySource(
        digest=f"{name}:{dataset.digest}",
        dense_features=dense,
        num_embeddings={feature: int(dataset.num_embeddings[feature]) for feature in features},
        train=splits["train"],
        test=splits["test"],
    )


def _check_arrays(name: str, part: ShardArrays, num_dense: int, num_sparse: int) -> None:
    rows = len(part.labels)
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "dense": ("float32", (rows, num_dense)),
        "sparse": ("int32", (num_sparse, rows)),
    }
    if part.weights is not None:
        wanted["weights"] = ("float32", (rows,))
    if part.labels.ndim != 1 or part.labels.dtype.kind not in "biuf":
        raise DatasetError(
            f"the loader {name} gave labels as {part.labels.dtype.name} {list(part.labels.shape)}; they must "
            "be numbers [rows]"
        )
    for kind, (dtype, shape) in wanted.items():
        array = getattr(part, kind)
        if (array.dtype.name, array.shape) != (dtype, shape):
            raise DatasetError(
                f"the loader {name} gave {kind} as {array.dtype.name} {list(array.shape)}; with {rows} "
                f"labels it must be {dtype} {list(shape)}"
            )
