"""The distinct items of a dataset, and how often each is in a positive training row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cloudrec_contract.features import MISSING_ID
from trainer.base.errors import ConfigError
from trainer.data.lists import ListArrays
from trainer.data.source import ArrayParts, ArraySource
from trainer.data.stream import BatchStream, ShardArrays

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from trainer.data.batch import Batch
    from trainer.data.source import SampleSource
    from trainer.data.stream import ArraySplit, RowArrays


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a dataset.

    Attributes:
        feature: the one that identifies an item.
        ids: those of the items.
        places: of each id's item in `ids`; -1 for none.
        counts: the positive training rows of each id.
        rows: a row of each item, in the order of `ids`.
        trained: the items of training rows, the first ones.
    """

    feature: int
    ids: npt.NDArray[np.int64]
    places: Tensor
    counts: Tensor
    rows: ArrayParts
    trained: int = 0

    def batches(self, *, batch_size: int, rank: int, world_size: int) -> BatchStream:
        """Return one rank's share of the items' rows."""
        return BatchStream(
            self.rows,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            seed=0,
            epoch=0,
            shuffle=False,
        )

    def ids_of(self, batch: Batch) -> Tensor:
        """Return the id of each sample's item."""
        if batch.lengths is None:
            return batch.sparse[self.feature].long()
        first = int(batch.lengths[: self.feature].sum())
        return batch.sparse[first : first + len(batch)].long()


def find_items(source: SampleSource) -> Items:
    """Read the items of a dataset: all splits' ids of the feature that identifies an item.

    Values that the vocabulary does not know, and missing ones, are no items.

    Raises:
        ConfigError: the dataset's schema names no item.
    """
    schema = source.schema
    if schema is None or not schema.item or not isinstance(source, ArraySource):
        raise ConfigError(
            "the dataset does not say which features are an item's; add `item: [item_id]` to its feature "
            "schema, and prepare it again"
        )
    name = schema.item[0]
    if name in schema.managed:
        raise ConfigError(
            f"the item is known by {name}, which has encoding managed_collision: its rows change in the "
            "training, so items cannot be counted and ranked; give it encoding vocabulary, and prepare the "
            "data again"
        )
    feature = source.sparse_features.index(name)
    single = [each.name for each in schema.single].index(name)
    rows = source.num_embeddings[name]
    is_vocabulary = schema.single[single].encoding == "vocabulary"
    first = schema.single[single].first_id if is_vocabulary else MISSING_ID + 1
    seen = np.zeros(rows, np.bool_)
    seen[:first] = True
    counts = np.zeros(rows, np.int64)
    ids: list[npt.NDArray[np.int64]] = []
    parts: list[ShardArrays] = []
    trained = 0
    for which in ("train", "test"):
        split = source.split(which)
        for index in range(len(split.starts) - 1):
            arrays = split.arrays(index)
            size = len(arrays.labels)
            found = np.asarray(arrays.sparse[single : single + 1, 0:size][0]).astype(np.int64)
            if which == "train":
                counts += np.bincount(found[np.asarray(arrays.labels) == 1], minlength=rows)
            each, places_of = np.unique(found, return_index=True)
            new = ~seen[each]
            seen[each] = True
            if new.any():
                ids.append(each[new])
                parts.append(_rows_of(arrays, places_of[new], size, split))
                trained += int(new.sum()) if which == "train" else 0
    every = np.concatenate([np.empty(0, np.int64), *ids])
    places = torch.full((rows,), -1, dtype=torch.int64)
    places[torch.from_numpy(every)] = torch.arange(len(every))
    train = source.split("train")
    kept = ArrayParts("items", tuple(parts), train.num_dense, tuple(train.hotness), tuple(train.list_places))
    return Items(feature, every, places, torch.from_numpy(counts), kept, trained)


def _rows_of(arrays: RowArrays, rows: npt.NDArray[np.int64], size: int, split: ArraySplit) -> ShardArrays:
    """Return copies of some rows of a shard."""
    lists = None
    if arrays.lists is not None:
        found = [arrays.lists.rows(each, slice(0, size)).take(rows) for each in range(len(split.list_places))]
        ends = np.cumsum(np.concatenate([each.lengths for each in found])).reshape(len(found), -1)
        firsts = np.concatenate([[0], ends[:-1, -1]])[:, None]
        lists = ListArrays(
            np.concatenate([firsts, ends], axis=1),
            np.concatenate([each.values for each in found]),
            np.concatenate([each.weights for each in found if each.weights is not None])
            if arrays.lists.weights is not None
            else None,
        )
    return ShardArrays(
        np.asarray(arrays.labels)[rows],
        np.asarray(arrays.dense)[rows],
        np.ascontiguousarray(np.asarray(arrays.sparse[0 : sum(split.hotness), 0:size])[:, rows]),
        lists,
    )
