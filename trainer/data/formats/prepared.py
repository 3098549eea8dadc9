"""The prepared dataset: `dataset.json` and the shards it names, opened, checked and memory-mapped.

    DIR/dataset.json                      written last: its presence commits the dataset
    DIR/train/shard-00000.labels.npy      uint8   [rows]; of several labels [labels, rows], 255: there is none
    DIR/train/shard-00000.dense.npy       float32 [rows, dense features]
    DIR/train/shard-00000.sparse.npy      int32   [sparse features, rows], feature-major; int64 with hashes
    DIR/train/shard-00000.offsets.npy     int64   [features with lists, rows + 1], if there are any
    DIR/train/shard-00000.values.npy      int32   [ids], likewise; see trainer.data.lists
    DIR/train/shard-00000.value_weights.npy  float32 [ids], if those of a feature have weights
    DIR/train/shard-00000.weights.npy     float32 [rows], if the samples have weights
    DIR/vocabulary/C1.npy                 uint32  [ids - 2], the value of each id from 2 on; not with hashes
    DIR/vocabulary/city.jsonl             the same as texts, with a feature schema

Sizes, headers and the digest are always checked; `verify` reads every byte as well.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from cloudrec_contract.features import HASH_LIMIT
from trainer.base.errors import DatasetError
from trainer.base.location import local_path
from trainer.data.formats import manifest
from trainer.data.formats.shard_files import (
    NPY_HEADER,
    check_header,
    check_size,
    verify_answers,
    verify_crc32,
    verify_lists,
    verify_shard,
)
from trainer.data.lists import ListArrays
from trainer.data.source import ArraySource
from trainer.data.stream import ShardArrays

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec_contract.features import FeatureSchema
    from trainer.data.encoding import KnownEncoding
    from trainer.data.formats.manifest import DatasetManifest, ShardEntry

_MAPPED_SHARDS = 64  # mappings kept open: a terabyte has more shards than a process may map

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Split:
    """One split's rows, 0 to `rows` - 1, over its shards in order."""

    name: str
    directory: Path
    rows: int
    positives: int | tuple[int, ...]  # of each label if there are several
    num_dense: int
    num_sparse: int  # features with one id
    list_places: tuple[int, ...]  # of the others, among all
    shards: tuple[ShardEntry, ...]
    starts: tuple[int, ...]  # the first row of every shard, and `rows` at the end
    may_lack: tuple[bool, ...] = ()  # for each of several labels whether a row may lack it; empty for one
    is_weighted: bool = False
    has_value_weights: bool = False
    has_hashes: bool = False
    _mapped: OrderedDict[int, ShardArrays] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def tasks(self) -> int:
        """The labels of a row if they are several; 0 for one."""
        return len(self.may_lack)

    @property
    def hotness(self) -> tuple[int, ...]:
        """One id a sample of every feature without lists."""
        return (1,) * self.num_sparse

    def arrays(self, index: int) -> ShardArrays:
        """Return the arrays of one shard; the mappings used last stay open. Any thread may call this."""
        with self._lock:
            if index not in self._mapped:
                self._mapped[index] = self._open(index)
                if len(self._mapped) > _MAPPED_SHARDS:
                    self._mapped.popitem(last=False)
            self._mapped.move_to_end(index)
            return self._mapped[index]

    def _open(self, index: int) -> ShardArrays:
        shard = self.shards[index]
        labels, dense, sparse = (_map(self.directory / shard.files[kind].path) for kind in manifest.KINDS)
        lists = None
        if self.list_places:
            kinds = manifest.LIST_KINDS + (manifest.VALUE_WEIGHT_KINDS if self.has_value_weights else ())
            lists = ListArrays(*(_map(self.directory / shard.files[kind].path) for kind in kinds))
        if self.tasks:
            labels = labels.view(np.int8).T  # where a row lacks a label, 255 becomes -1
        weights = _map(self.directory / shard.files["weights"].path) if self.is_weighted else None
        return ShardArrays(labels, dense, sparse, lists, weights)


@dataclass(frozen=True, slots=True)
class PreparedDataset:
    """A committed dataset whose manifest, sizes and headers agree."""

    directory: Path
    digest: str
    dense_features: tuple[str, ...]
    sparse_features: tuple[str, ...]
    num_embeddings: dict[str, int]  # rows that each feature's table needs
    encoding: KnownEncoding | None  # how values got their ids; None: unknown
    schema: FeatureSchema | None
    has_labels: bool
    train: Split
    test: Split

    @classmethod
    def open(cls, uri: str, *, verify: bool) -> Self:
        """Open the dataset at a path or file:// URI.

        Always checked: the manifest, its digest, every file's size and npy header. With `verify`
        also every checksum and every value's range, which reads the whole dataset once.

        Raises:
            DatasetError: a check failed; it names the file, the value, the limit and the remedy.
        """
        directory = _directory(uri)
        described = manifest.read(directory)
        dataset = cls(
            directory=directory,
            digest=described.digest,
            dense_features=described.dense_features,
            sparse_features=described.sparse_features,
            num_embeddings=described.num_embeddings,
            encoding=described.encoding,
            schema=described.schema,
            has_labels=described.has_labels,
            train=_split(directory, described, "train"),
            test=_split(directory, described, "test"),
        )
        for split in (dataset.train, dataset.test):
            _check_headers(split)
        for file in () if dataset.encoding is None else dataset.encoding.files:
            check_size(directory / file.path, file.size)
        if verify:
            dataset.verify()
        return dataset

    def verify(self, *, part: int = 0, parts: int = 1) -> None:
        """Read every `parts`-th shard from number `part` on: checksums, ids, labels, finite values.

        Ranks that share a disk can each take a part. Each of torch's threads reads a shard at a time.
        """
        lists = [self.sparse_features[place] for place in self.train.list_places]
        single = [name for name in self.sparse_features if name not in lists]
        managed = () if self.schema is None else self.schema.managed
        rows = {**self.num_embeddings, **dict.fromkeys(managed, HASH_LIMIT)}
        limits = [{name: rows[name] for name in names} for names in (single, lists)]

        def check(split: Split, index: int) -> None:
            arrays = split.arrays(index)
            verify_shard(split.directory, split.shards[index], arrays, limits[0])
            verify_answers(split.directory, split.shards[index], arrays, split.may_lack)
            if arrays.lists is not None:
                verify_lists(split.directory, split.shards[index], arrays.lists, limits[1])

        splits = (self.train, self.test)
        work = [(split, index) for split in splits for index in range(part, len(split.shards), parts)]
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            try:
                for _ in pool.map(check, *zip(*work, strict=True)) if work else ():
                    pass  # the first error is raised here
            finally:
                pool.shutdown(cancel_futures=True)
        for split in splits if parts == 1 else ():
            self._check_positives(split)
        for file in () if self.encoding is None else self.encoding.files[part::parts]:
            verify_crc32(self.directory / file.path, file.crc32)

    def _check_positives(self, split: Split) -> None:
        each = [np.count_nonzero(split.arrays(i).labels == 1, axis=0) for i in range(len(split.shards))]
        found = np.sum(each, axis=0) if each else np.zeros_like(split.positives)
        if not np.array_equal(found, split.positives):
            raise DatasetError(
                f"{self.directory / manifest.FILE_NAME}: the {split.name} split claims {split.positives} "
                f"positive labels, its shards hold {found}; prepare the dataset again"
            )


def _directory(uri: str) -> Path:
    try:
        directory = local_path(uri)
    except ValueError as error:
        raise DatasetError(f"dataset {error}") from error
    if not directory.exists():
        raise DatasetError(f"dataset {directory}: no such folder; `cloudrec data prepare` makes one")
    if not directory.is_dir():
        raise DatasetError(
            f"dataset {directory}: a file, but a dataset is the folder that holds dataset.json"
        )
    return directory


def _split(directory: Path, described: DatasetManifest, name: str) -> Split:
    entry = described.splits[name]
    schema = described.schema
    sparse = () if schema is None else schema.sparse
    places = tuple(place for place, each in enumerate(sparse) if each.kind != "single")
    return Split(
        name=name,
        directory=directory,
        rows=entry.rows,
        positives=entry.positives,
        num_dense=len(described.dense_features),
        num_sparse=len(described.sparse_features) - len(places),
        list_places=places,
        shards=entry.shards,
        starts=tuple(accumulate((shard.rows for shard in entry.shards), initial=0)),
        may_lack=() if schema is None or not schema.tasks else tuple(each.missing for each in schema.labels),
        is_weighted=schema is not None and schema.weight is not None,
        has_value_weights=schema is not None and bool(schema.weighted),
        has_hashes=schema is not None and bool(schema.managed),
    )


def _check_headers(split: Split) -> None:
    ids = np.dtype("<i8" if split.has_hashes else "<i4")
    for shard in split.shards:
        expected: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "labels": (np.dtype(np.uint8), (split.tasks, shard.rows) if split.tasks else (shard.rows,)),
            "dense": (np.dtype("<f4"), (shard.rows, split.num_dense)),
            "sparse": (ids, (split.num_sparse, shard.rows)),
        }
        if split.list_places:
            expected["offsets"] = (np.dtype("<i8"), (len(split.list_places), shard.rows + 1))
            size = shard.files["values"].size - NPY_HEADER  # a reader of other bytes finds another header
            expected["values"] = (ids, (size // ids.itemsize,))
            if split.has_value_weights:
                expected["value_weights"] = (np.dtype("<f4"), (size // ids.itemsize,))
        if split.is_weighted:
            expected["weights"] = (np.dtype("<f4"), (shard.rows,))
        for kind, (dtype, shape) in expected.items():
            entry = shard.files[kind]
            check_header(split.directory / entry.path, dtype=dtype, shape=shape, size=entry.size)


def _hotness(dataset: PreparedDataset) -> tuple[int, ...]:
    """Return the ids per sample of each feature, of lists in the mean of the first shard."""
    found = [1] * len(dataset.sparse_features)
    if dataset.train.list_places and dataset.train.shards:
        lists = dataset.train.arrays(0).lists
        assert lists is not None  # noqa: S101 - for the type checker: there are places of some
        rows = max(1, dataset.train.shards[0].rows)
        for place, offsets in zip(dataset.train.list_places, lists.offsets, strict=True):
            found[place] = max(1, -(-int(offsets[-1] - offsets[0]) // rows))
    return tuple(found)


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        is_empty = path.stat().st_size <= NPY_HEADER  # of which there is no map
        return np.asarray(np.load(path, mmap_mode=None if is_empty else "r", allow_pickle=False))  # plain
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be mapped: {error}; prepare the dataset again") from error


class PreparedSource(ArraySource):
    """A prepared dataset as a source of samples."""

    def __init__(self, uri: str) -> None:
        self.dataset = PreparedDataset.open(uri, verify=False)
        super().__init__(
            digest=self.dataset.digest,
            dense_features=self.dataset.dense_features,
            num_embeddings={name: self.dataset.num_embeddings[name] for name in self.dataset.sparse_features},
            train=self.dataset.train,
            test=self.dataset.test,
        )
        self.encoding = self.dataset.encoding
        self.vocabulary_at = self.dataset.directory
        self.schema = self.dataset.schema
        self.has_labels = self.dataset.has_labels
        self.hotness = _hotness(self.dataset)
        if self.encoding is None:
            _LOG.warning(
                "dataset %s: its schema version 1 keeps no vocabulary, so how its ids were made is unknown; "
                "prepare the data again to keep it, which gives the same ids",
                uri,
            )

    def verify(self, *, part: int, parts: int) -> None:
        """See SampleSource; this reads every byte and value, so the batches are not checked again."""
        self.dataset.verify(part=part, parts=parts)
        self.checked = True
