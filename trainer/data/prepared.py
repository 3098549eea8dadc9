"""The prepared dataset: `dataset.json` and the shards it names, opened, checked and memory-mapped.

    DIR/dataset.json                      written last: its presence commits the dataset
    DIR/train/shard-00000.labels.npy      uint8   [rows]
    DIR/train/shard-00000.dense.npy       float32 [rows, dense features]
    DIR/train/shard-00000.sparse.npy      int32   [sparse features, rows], feature-major

Sizes, headers and the digest are always checked; `verify` reads every byte as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from trainer.data import manifest
from trainer.data.shard_files import check_header, verify_shard
from trainer.errors import DataError
from trainer.location import local_path

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from trainer.data.manifest import Manifest, ShardEntry

_MAPPED_SHARDS = 64  # mappings kept at once: a terabyte has more shards than a process may map


class ShardArrays(NamedTuple):
    """One shard's rows, memory-mapped and read-only."""

    labels: npt.NDArray[np.uint8]  # [rows]
    dense: npt.NDArray[np.float32]  # [rows, D]
    sparse: npt.NDArray[np.int32]  # [F, rows]


@dataclass(frozen=True, slots=True)
class Split:
    """One split's rows, 0 to `rows` - 1, over its shards in order."""

    name: str
    directory: Path
    rows: int
    positives: int
    num_dense: int
    num_sparse: int
    shards: tuple[ShardEntry, ...]
    starts: tuple[int, ...]  # the first row of every shard, and `rows` at the end
    _mapped: OrderedDict[int, ShardArrays] = field(default_factory=OrderedDict, repr=False, compare=False)

    @property
    def hotness(self) -> tuple[int, ...]:
        """One id a sample of every feature."""
        return (1,) * self.num_sparse

    def arrays(self, index: int) -> ShardArrays:
        """The arrays of one shard; the mappings last used are kept."""
        if index in self._mapped:
            self._mapped.move_to_end(index)
            return self._mapped[index]
        shard = self.shards[index]
        labels, dense, sparse = (_map(self.directory / shard.files[kind].path) for kind in manifest.KINDS)
        arrays = ShardArrays(labels, dense, sparse)
        self._mapped[index] = arrays
        if len(self._mapped) > _MAPPED_SHARDS:
            self._mapped.popitem(last=False)
        return arrays


@dataclass(frozen=True, slots=True)
class PreparedDataset:
    """A committed dataset whose manifest, sizes and headers agree."""

    directory: Path
    digest: str
    dense_features: tuple[str, ...]
    sparse_features: tuple[str, ...]
    num_embeddings: dict[str, int]  # rows that each feature's table needs
    train: Split
    test: Split

    @classmethod
    def open(cls, uri: str, *, verify: bool) -> Self:
        """Open the dataset at a path or file:// URI.

        Always checked: the manifest, its digest, every file's size and npy header. With `verify`
        also every checksum and every value's range, which reads the whole dataset once.

        Raises:
            DataError: whatever is wrong, with the file, the value, the limit and the remedy.
        """
        directory = _directory(uri)
        described = manifest.read(directory)
        dataset = cls(
            directory=directory,
            digest=described.digest,
            dense_features=described.dense_features,
            sparse_features=described.sparse_features,
            num_embeddings=described.num_embeddings,
            train=_split(directory, described, "train"),
            test=_split(directory, described, "test"),
        )
        for split in (dataset.train, dataset.test):
            _check_headers(split)
        if verify:
            dataset.verify()
        return dataset

    def verify(self, *, part: int = 0, parts: int = 1) -> None:
        """Read every `parts`-th shard from number `part` on: checksums, ids, labels, finite values.

        Ranks that share a disk can each take a part.
        """
        limits = np.array([self.num_embeddings[name] for name in self.sparse_features], dtype=np.int64)
        for split in (self.train, self.test):
            for index in range(part, len(split.shards), parts):
                verify_shard(
                    split.directory, split.shards[index], split.arrays(index), limits, self.sparse_features
                )
            if parts == 1:
                self._check_positives(split)

    def _check_positives(self, split: Split) -> None:
        found = sum(int(np.count_nonzero(split.arrays(i).labels)) for i in range(len(split.shards)))
        if found != split.positives:
            raise DataError(
                f"{self.directory / manifest.FILE_NAME}: the {split.name} split claims {split.positives} "
                f"positive labels, its shards hold {found}; prepare the dataset again"
            )


def _directory(uri: str) -> Path:
    try:
        directory = local_path(uri)
    except ValueError as error:
        raise DataError(f"dataset {error}") from error
    if not directory.exists():
        raise DataError(f"dataset {directory}: no such folder; `cloudrec data prepare` makes one")
    if not directory.is_dir():
        raise DataError(f"dataset {directory}: a file, but a dataset is the folder that holds dataset.json")
    return directory


def _split(directory: Path, described: Manifest, name: str) -> Split:
    entry = described.splits[name]
    return Split(
        name=name,
        directory=directory,
        rows=entry.rows,
        positives=entry.positives,
        num_dense=len(described.dense_features),
        num_sparse=len(described.sparse_features),
        shards=entry.shards,
        starts=tuple(accumulate((shard.rows for shard in entry.shards), initial=0)),
    )


def _check_headers(split: Split) -> None:
    for shard in split.shards:
        expected: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "labels": (np.dtype(np.uint8), (shard.rows,)),
            "dense": (np.dtype("<f4"), (shard.rows, split.num_dense)),
            "sparse": (np.dtype("<i4"), (split.num_sparse, shard.rows)),
        }
        for kind, (dtype, shape) in expected.items():
            entry = shard.files[kind]
            check_header(split.directory / entry.path, dtype=dtype, shape=shape, size=entry.size)


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))  # plain: slicing is quicker
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be mapped: {error}; prepare the dataset again") from error
