"""Lists of ids: the features of which a sample has any number of ids.

A shard keeps them as offsets [features, rows + 1] and values: the ids of a row of feature f are
`values[offsets[f, row] : offsets[f, row + 1]]`. Those of one feature are adjacent. If a feature's ids have
weights, there is one for each id of all lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from trainer.data.batch import Batch


class ListArrays(NamedTuple):
    """The lists of one shard, in arrays that may be memory-mapped."""

    offsets: npt.NDArray[np.int64]  # [features, rows + 1]
    values: npt.NDArray[np.int32]  # [ids]
    weights: npt.NDArray[np.float32] | None = None  # [ids]

    def rows(self, feature: int, rows: slice) -> Lists:
        """Return a feature's lists of adjacent rows."""
        ends = np.asarray(self.offsets[feature, rows.start : rows.stop + 1])
        weights = None if self.weights is None else self.weights[ends[0] : ends[-1]]
        return Lists(np.diff(ends), self.values[ends[0] : ends[-1]], weights)


class Lists(NamedTuple):
    """A feature's lists of some rows."""

    lengths: npt.NDArray[np.int64]  # [rows]
    values: npt.NDArray[np.int32]  # [sum of the lengths]
    weights: npt.NDArray[np.float32] | None = None  # [sum of the lengths]

    def take(self, rows: npt.NDArray[np.int64]) -> Lists:
        """Return the lists of these rows, in their order."""
        ends = np.cumsum(self.lengths)
        lengths = self.lengths[rows]
        firsts = ends[rows] - lengths  # of the chosen lists, here
        there = np.cumsum(lengths) - lengths  # and in the result
        places = np.repeat(firsts - there, lengths) + np.arange(int(lengths.sum()))
        return Lists(lengths, self.values[places], None if self.weights is None else self.weights[places])


def join(parts: Sequence[Lists]) -> Lists:
    """Return the lists of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Lists(np.empty(0, np.int64), np.empty(0, np.int32))
    weights = [each.weights for each in parts if each.weights is not None]
    return Lists(
        np.concatenate([each.lengths for each in parts]),
        np.concatenate([each.values for each in parts]),
        np.concatenate(weights) if weights else None,
    )


def with_lists(batch: Batch, lists: Sequence[Lists], places: Sequence[int]) -> Batch:
    """Return a batch of features with one id each as one that also has these features.

    Args:
        batch: its `sparse` has the features with one id.
        lists: those of the other features.
        places: where these are among all features.
    """
    size, count = len(batch), len(batch.sparse) + len(lists)
    lengths = torch.ones(count, size, dtype=torch.int32)
    ids: list[torch.Tensor] = list(batch.sparse)
    weights = [torch.ones(size)] * len(ids)
    for place, each in sorted(zip(places, lists, strict=True), key=lambda pair: pair[0]):
        lengths[place] = torch.from_numpy(each.lengths.astype(np.int32))
        ids.insert(place, torch.from_numpy(np.array(each.values)))
        if each.weights is not None:
            weights.insert(place, torch.from_numpy(np.array(each.weights, np.float32)))
    complete = len(weights) == count and any(each.weights is not None for each in lists)
    return replace(
        batch,
        sparse=torch.cat(ids),
        lengths=lengths,
        id_weights=torch.cat(weights) if complete else None,
    )
