"""The common interface of all formats of training data.

A source's batches are a pure function of (seed, epoch, position): a run that continues from a checkpoint, on
any number of ranks, reads the same samples in the same order.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypedDict

import numpy as np

from trainer.data.splitmix import splitmix64
from trainer.data.stream import BatchStream, ShardArrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec_contract.features import FeatureSchema
    from trainer.data.batch import Batch
    from trainer.data.encoding import KnownEncoding
    from trainer.data.stream import ArraySplit, RowArrays

DENSE_NAMES = tuple(f"I{index}" for index in range(1, 14))  # Criteo's 13 numbers
SPARSE_NAMES = tuple(f"C{index}" for index in range(1, 27))  # and 26 categories


class SplitSize(Protocol):
    """A split's number of samples."""

    @property
    def rows(self) -> int: ...  # noqa: D102 - said above


class EpochPart(TypedDict):
    """One rank's part of an epoch; see BatchStream."""

    batch_size: int
    rank: int
    world_size: int
    seed: int
    epoch: int
    start_sample: int
    shuffle: bool


class SampleSource(ABC):
    """Two splits of samples; if `checked`, all values are in range, otherwise every batch is checked."""

    checked = False
    has_labels = True  # without them, samples can only be scored
    hotness: tuple[int, ...] = ()  # ids per sample of each feature, if all samples have the same number
    encoding: KnownEncoding | None = None  # how raw values got their ids; None: unknown
    vocabulary_at: Path | None = None  # the folder of the encoding's files; None if it has none
    schema: FeatureSchema | None = None  # how features are embedded; None: each has its own table

    def __init__(
        self,
        *,
        digest: str,
        dense_features: Sequence[str],
        num_embeddings: Mapping[str, int],
        train: SplitSize,
        test: SplitSize,
        resumable: bool = True,
    ) -> None:
        """`digest` changes with the data; `num_embeddings` are the rows that each feature's table needs."""
        self.digest = digest
        self.dense_features = tuple(dense_features)
        self.sparse_features = tuple(num_embeddings)
        self.num_embeddings = dict(num_embeddings)
        self.train = train
        self.test = test
        self.resumable = resumable

    def batches(
        self,
        split: str,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int = 0,
        epoch: int = 0,
        start_sample: int = 0,
        shuffle: bool = False,
    ) -> Iterable[Batch]:
        """Return one rank's batches from a position of an epoch to its end; see BatchStream."""
        reading = EpochPart(
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            seed=seed,
            epoch=epoch,
            start_sample=start_sample,
            shuffle=shuffle,
        )
        return self._read(split, reading)

    @abstractmethod
    def _read(self, split: str, reading: EpochPart) -> Iterable[Batch]:
        """See batches."""

    def verify(self, *, part: int, parts: int) -> None:  # noqa: B027 - most formats have nothing to check
        """Read one of `parts` parts of the data; DatasetError for damage that the format can detect."""


class ArraySource(SampleSource):
    """Samples in arrays, in memory or mapped from files."""

    def __init__(
        self,
        *,
        digest: str,
        dense_features: Sequence[str],
        num_embeddings: Mapping[str, int],
        train: ArraySplit,
        test: ArraySplit,
    ) -> None:
        super().__init__(
            digest=digest,
            dense_features=dense_features,
            num_embeddings=num_embeddings,
            train=train,
            test=test,
        )
        self.hotness = tuple(train.hotness)
        self._splits = {"train": train, "test": test}

    def split(self, name: str) -> ArraySplit:
        """Return the arrays of a split."""
        return self._splits[name]

    def _read(self, split: str, reading: EpochPart) -> BatchStream:
        return BatchStream(self._splits[split], **reading)


@dataclass(frozen=True, slots=True)
class ArrayParts:
    """A split as a sequence of existing arrays."""

    name: str
    parts: tuple[RowArrays, ...]
    num_dense: int
    hotness: tuple[int, ...]
    list_places: tuple[int, ...] = ()
    tasks: int = 0
    is_weighted: bool = False
    has_hashes: bool = False
    starts: tuple[int, ...] = field(init=False)  # the first row of every part, and the rows at the end

    def __post_init__(self) -> None:
        starts = tuple(accumulate((len(part.labels) for part in self.parts), initial=0))
        object.__setattr__(self, "starts", starts)

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return self.starts[-1]

    def arrays(self, index: int) -> RowArrays:
        """One part."""
        return self.parts[index]


def array_parts(
    name: str, parts: Iterable[RowArrays], hotness: tuple[int, ...] = (1,) * len(SPARSE_NAMES)
) -> ArrayParts:
    """Return a split of Criteo's 13 dense and 26 sparse features."""
    return ArrayParts(name, tuple(parts), len(DENSE_NAMES), hotness)


def split_rows(rows: ShardArrays, test_fraction: float) -> tuple[ShardArrays, ShardArrays]:
    """Return train and test rows, chosen by a hash of each row's number, so the split is always the same."""
    numbers = splitmix64(np.arange(len(rows.labels), dtype=np.uint64))
    held_out = (numbers >> np.uint64(11)) < np.uint64(int(test_fraction * 2**53))
    return _take(rows, ~held_out), _take(rows, held_out)


def source_in_memory(splits: Mapping[str, Sequence[ShardArrays]], sizes: Sequence[int]) -> ArraySource:
    """Return a source of Criteo's features in memory; `sizes` are the rows of the features' tables."""
    num_embeddings = dict(zip(SPARSE_NAMES, sizes, strict=True))
    return ArraySource(
        digest=_digest(splits, num_embeddings),
        dense_features=DENSE_NAMES,
        num_embeddings=num_embeddings,
        train=array_parts("train", splits["train"]),
        test=array_parts("test", splits["test"]),
    )


def _digest(splits: Mapping[str, Sequence[ShardArrays]], num_embeddings: Mapping[str, int]) -> str:
    digest = hashlib.sha256(repr(sorted(num_embeddings.items())).encode())
    for array in (each for split in ("train", "test") for part in splits[split] for each in part[:3]):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _take(rows: ShardArrays, chosen: npt.NDArray[np.bool_]) -> ShardArrays:
    return ShardArrays(rows.labels[chosen], rows.dense[chosen], np.ascontiguousarray(rows.sparse[:, chosen]))
