"""Rows on the device, in the order of the epoch, and the batches that are taken from them.

Nothing here waits for the device: how many ids a batch has is known from the lengths on the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from trainer.data.batch import Batch
from trainer.data.mixing import signed, split_mix
from trainer.data.sample_sums import hash_samples, sum_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from trainer.data.device.lane import SideLane
    from trainer.data.device.layout import SplitLayout
    from trainer.data.device.loads import ReadPlan, WindowLoad

_SIGN = -(1 << 63)


def permutation_on(device: torch.device, size: int, key: int) -> Tensor:
    """Return trainer.data.order.permutation, computed on a device: int64 [size]."""
    low_bits = (1 << max(size - 1, 0).bit_length()) - 1
    index = torch.arange(size, device=device)
    keyed = (split_mix(index ^ signed(key, 64)) & ~low_bits) | index
    in_order = (keyed ^ _SIGN).sort().values  # torch compares signed numbers, the order is of unsigned ones
    return in_order & low_bits


class TakenRows(NamedTuple):
    """The rows of one cut: where they are in their window."""

    window: DeviceWindow
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def of(self, name: str) -> Tensor:
        """Return the rows of an array [rows, ...]."""
        return self.window.take(self.window.arrays[name], 0, self.start, self.stop)

    def columns(self, name: str) -> Tensor:
        """Return the rows of an array [..., rows]."""
        return self.window.take(self.window.arrays[name], 1, self.start, self.stop)


class DeviceWindow:
    """The rows of a load on the device.

    Args:
        layout: that of the arrays.
        load: which rows these are.
        arrays: on the device.
        plan: has the epoch and its order.
        lengths: those of the lists, on the host; None if there are none. They are not kept.
    """

    def __init__(
        self,
        layout: SplitLayout,
        load: WindowLoad,
        arrays: Mapping[str, Tensor],
        plan: ReadPlan,
        lengths: npt.NDArray[np.int32] | None,
    ) -> None:
        self.layout = layout
        self.arrays = arrays
        ends, order = arrays["ends"], plan.order
        self._order: Tensor | None = None
        if order is not None and load.window is not None:
            self._order = permutation_on(ends.device, load.rows, order.key(load.window))
        index = torch.arange(load.rows, device=ends.device) if self._order is None else self._order
        of_range = torch.bucketize(index, ends[:-1], right=True)
        self.sample_ids = index + arrays["shifts"].index_select(0, of_range)
        self._epoch = plan.epoch
        self._hashes = hash_samples(plan.epoch, self.sample_ids) if plan.takes_most else None
        self._list_ends: npt.NDArray[np.int64] | None = None
        if lengths is not None:
            self._first_ids = _starts_of(arrays["lengths"])
            if order is not None and load.window is not None:
                lengths = np.take(lengths, order.shuffle(load.window), axis=1)
            self._list_ends = np.zeros((len(lengths), load.rows + 1), np.int64)
            np.cumsum(lengths, axis=1, out=self._list_ends[:, 1:])

    def take(self, array: Tensor, dim: int, start: int, stop: int) -> Tensor:
        """Return the rows at some places of the order, in new memory or as a part of the window's."""
        if self._order is None:
            return array.narrow(dim, start, stop - start)
        return array.index_select(dim, self._order[start:stop])

    def sums(self, start: int, stop: int) -> Tensor:
        """Return trainer.data.sample_sums.sum_samples of the rows at some places of the order."""
        if self._hashes is None:
            return sum_samples(self._epoch, self.sample_ids[start:stop])
        return self._hashes[:, start:stop].sum(dim=1)

    def take_into(self, out: Tensor, array: Tensor, start: int, stop: int) -> None:
        """Copy the rows [rows, ...] at some places of the order into other memory."""
        if self._order is None:
            out.copy_(array[start:stop])
        else:
            torch.index_select(array, 0, self._order[start:stop], out=out)

    def take_lists(self, start: int, stop: int) -> _TakenLists:
        """Return the lists of the rows at some places of the order."""
        assert self._list_ends is not None  # noqa: S101 - for the type checker: there are lists
        totals = (self._list_ends[:, stop] - self._list_ends[:, start]).tolist()
        lengths = self.take(self.arrays["lengths"], 1, start, stop)
        firsts = self.take(self._first_ids, 1, start, stop)
        total = sum(totals)
        bases = (firsts - _starts_of(lengths)).flatten()
        places = bases.repeat_interleave(lengths.flatten(), output_size=total)
        places += torch.arange(total, device=places.device)
        weights = self.arrays.get("value_weights")
        return _TakenLists(
            totals=totals,
            lengths=lengths,
            values=self.arrays["values"].index_select(0, places).split(totals),
            weights=None if weights is None else weights.index_select(0, places).split(totals),
        )


class _TakenLists(NamedTuple):
    totals: list[int]  # ids of each feature
    lengths: Tensor  # int32 [features, rows]
    values: Sequence[Tensor]  # of each feature
    weights: Sequence[Tensor] | None


class BatchMaker:
    """Makes batches from taken rows; what only depends on a batch's size is kept on the device."""

    def __init__(self, layout: SplitLayout, lane: SideLane) -> None:
        """Call it, and the object, in the lane's `work`."""
        self._layout = layout
        self._lane = lane
        self._lengths: dict[int, Tensor] = {}
        places = layout.list_places
        single = [place for place in range(layout.features) if place not in places]
        by_place = sorted(range(layout.features), key=[*single, *places].__getitem__)
        self._by_place = lane.constant(by_place)
        self._single = frozenset(single)

    def __call__(self, rows: Sequence[TakenRows], global_size: int) -> Batch:
        """Return the batch of at least one row."""
        size = sum(each.size for each in rows)
        batch = Batch(
            dense=_joined([each.of("dense") for each in rows]),
            sparse=self._single_ids(rows, size),
            labels=_joined([each.of("labels") for each in rows]),
            sample_ids=_joined([each.window.sample_ids[each.start : each.stop] for each in rows]),
            global_size=global_size,
            weights=_joined([each.of("weights") for each in rows])
            if "weights" in rows[0].window.arrays
            else None,
            sums=_added([each.window.sums(each.start, each.stop) for each in rows]),
            **self._lengths_of(size),
        )
        return self._with_lists(batch, rows, size) if self._layout.list_places else batch

    def _lengths_of(self, size: int) -> dict[str, Any]:
        hotness = self._layout.hotness
        if all(each == 1 for each in hotness):
            return {}
        if size not in self._lengths:
            one = self._lane.constant(hotness, torch.int32)
            self._lengths[size] = one[:, None].repeat(1, size)
        return {"lengths": self._lengths[size], "counts": tuple(each * size for each in hotness)}

    def _single_ids(self, rows: Sequence[TakenRows], size: int) -> Tensor:
        """Return the ids of the features without lists, as a batch has them."""
        layout = self._layout
        if layout.id_order == "bags":
            return self._bags(rows, size)
        if layout.id_order == "rows":
            return _joined([each.of("ids") for each in rows]).t().contiguous()
        columns = _joined([each.columns("ids") for each in rows], dim=1).contiguous()
        if all(each == 1 for each in layout.hotness):
            return columns
        return torch.cat([part.t().reshape(-1) for part in columns.split(list(layout.hotness))])

    def _bags(self, rows: Sequence[TakenRows], size: int) -> Tensor:
        layout = self._layout
        first = rows[0].window.arrays["ids"]
        flat = first.new_empty(layout.columns * size)
        stored = [
            list(layout.bags(each.window.arrays["ids"], each.window.sample_ids.shape[0])) for each in rows
        ]
        at = 0
        for feature, hotness in enumerate(layout.hotness):
            for each, bags in zip(rows, stored, strict=True):
                stop = at + each.size * hotness
                out = flat[at:stop].view(each.size, hotness)
                each.window.take_into(out, bags[feature], each.start, each.stop)
                at = stop
        return flat.view(-1, size) if all(each == 1 for each in layout.hotness) else flat

    def _with_lists(self, batch: Batch, rows: Sequence[TakenRows], size: int) -> Batch:
        parts = [each.window.take_lists(each.start, each.stop) for each in rows]
        lengths = _joined([each.lengths for each in parts], dim=1)
        ones = lengths.new_ones(len(batch.sparse), size)
        singles, lists = iter(batch.sparse), iter(range(len(self._layout.list_places)))
        ids: list[Tensor] = []
        weights: list[Tensor] = []
        counts: list[int] = []
        weighted = all(each.weights is not None for each in parts)
        one = batch.dense.new_ones(size) if weighted else None
        for place in range(self._layout.features):
            if place in self._single:
                ids.append(next(singles))
                counts.append(size)
                weights += [] if one is None else [one]
                continue
            feature = next(lists)
            ids += [each.values[feature] for each in parts]
            weights += [each.weights[feature] for each in parts if each.weights is not None]
            counts.append(sum(each.totals[feature] for each in parts))
        return replace(
            batch,
            sparse=torch.cat(ids),
            lengths=torch.cat([ones, lengths]).index_select(0, self._by_place),
            id_weights=torch.cat(weights) if weighted else None,
            counts=tuple(counts),
        )


def _starts_of(lengths: Tensor) -> Tensor:
    """Return where each list begins among all, feature by feature: int64, in the shape of the lengths."""
    flat = lengths.flatten().long()
    return (flat.cumsum(0) - flat).view(lengths.shape)


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), dim)


def _added(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(tuple(parts)).sum(dim=0)
