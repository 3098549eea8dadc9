"""Where samples come from: one face for every format, and what all of them promise.

A source's batches are a pure function of (seed, epoch, position): a run that goes on from a
checkpoint, on any number of ranks, meets the same samples in the same order.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypedDict

import numpy as np

from trainer.data.prepared import PreparedDataset, ShardArrays
from trainer.data.stream import BatchStream
from trainer.splitmix import splitmix64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from trainer.data.batch import Batch
    from trainer.data.stream import ArraySplit, RowArrays

DENSE_NAMES = tuple(f"I{index}" for index in range(1, 14))  # Criteo's 13 numbers
SPARSE_NAMES = tuple(f"C{index}" for index in range(1, 27))  # and 26 categories


class Rows(Protocol):
    """A split: how many samples it has."""

    @property
    def rows(self) -> int: ...  # noqa: D102 - said above


class Reading(TypedDict):
    """One rank's part of an epoch; see BatchStream."""

    batch_size: int
    rank: int
    world_size: int
    seed: int
    epoch: int
    start_sample: int
    shuffle: bool


class Source(ABC):
    """Two splits of samples; `checked` ones are known to be in range, others are looked at as they come."""

    checked = False
    hotness: tuple[int, ...] = ()  # ids a sample of each feature, where all have equally many

    def __init__(
        self,
        *,
        digest: str,
        dense_features: Sequence[str],
        num_embeddings: Mapping[str, int],
        train: Rows,
        test: Rows,
        resumable: bool = True,
    ) -> None:
        """`digest` changes with the data; `num_embeddings` are the rows that each feature's table needs."""
        self.digest = digest
        self.dense_features = tuple(dense_features)
        self.sparse_features = tuple(num_embeddings)
        self.num_embeddings = dict(num_embeddings)
        self.train = train  # to learn from
        self.test = test  # to evaluate on
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
        """One rank's batches from a position of an epoch to its end; see BatchStream."""
        reading = Reading(
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
    def _read(self, split: str, reading: Reading) -> Iterable[Batch]:
        """See batches."""

    def verify(self, *, part: int, parts: int) -> None:  # noqa: B027 - most formats have nothing to check
        """Read one of the `parts` of the data and refuse what is damaged, where the format can tell."""


class ArraySource(Source):
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

    def _read(self, split: str, reading: Reading) -> BatchStream:
        return BatchStream(self._splits[split], **reading)


class PreparedSource(ArraySource):
    """A prepared dataset (trainer.data.prepared)."""

    def __init__(self, uri: str) -> None:
        self.dataset = PreparedDataset.open(uri, verify=False)
        super().__init__(
            digest=self.dataset.digest,
            dense_features=self.dataset.dense_features,
            num_embeddings={name: self.dataset.num_embeddings[name] for name in self.dataset.sparse_features},
            train=self.dataset.train,
            test=self.dataset.test,
        )

    def verify(self, *, part: int, parts: int) -> None:
        """See Source; every byte and value is looked at once, so batches need not be."""
        self.dataset.verify(part=part, parts=parts)
        self.checked = True


@dataclass(frozen=True, slots=True)
class ArrayParts:
    """A split as arrays that are there already, one after the other."""

    name: str
    parts: tuple[RowArrays, ...]
    num_dense: int
    hotness: tuple[int, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of every part, and the number of rows at the end."""
        return tuple(accumulate((len(part.labels) for part in self.parts), initial=0))

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
    """A split of Criteo's 13 and 26 features."""
    return ArrayParts(name, tuple(parts), len(DENSE_NAMES), hotness)


def split_rows(rows: ShardArrays, test_fraction: float) -> tuple[ShardArrays, ShardArrays]:
    """Train and test, chosen by a hash of each row's number: the same rows every time."""
    numbers = splitmix64(np.arange(len(rows.labels), dtype=np.uint64))
    held_out = (numbers >> np.uint64(11)) < np.uint64(int(test_fraction * 2**53))
    return _take(rows, ~held_out), _take(rows, held_out)


def source_in_memory(splits: Mapping[str, Sequence[ShardArrays]], sizes: Sequence[int]) -> ArraySource:
    """Criteo's features in arrays that were read whole; `sizes` are the rows of the features' tables."""
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
    for array in (array for split in ("train", "test") for part in splits[split] for array in part):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _take(rows: ShardArrays, chosen: npt.NDArray[np.bool_]) -> ShardArrays:
    return ShardArrays(rows.labels[chosen], rows.dense[chosen], np.ascontiguousarray(rows.sparse[:, chosen]))
