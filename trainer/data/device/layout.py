"""One buffer for all arrays of some rows, which goes to the device in one copy.

Arrays have the layout of their files where that is cheapest for the CPU: ids feature by feature, row by row,
or bag by bag. The device makes the layout of a batch from each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from trainer.data.stream import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from trainer.data.device.loads import WindowLoad
    from trainer.data.order import RowRange
    from trainer.data.stream import ArraySplit, RowArrays

_ALIGNMENT = 256  # bytes; of a GPU's fastest reads
_DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "int32": torch.int32,
    "int64": torch.int64,
}

IdOrder = Literal["columns", "rows", "bags"]  # [ids a row, rows]; [rows, ids a row]; [rows, ids] a feature


class Section(NamedTuple):
    """Where an array is in a buffer."""

    at: int
    size: int  # bytes
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadShape:
    """The sizes of the arrays of a load."""

    rows: int
    ranges: int
    list_ids: tuple[int, ...]  # of each feature with lists


class SplitLayout:
    """The arrays of a split in buffers."""

    def __init__(self, split: ArraySplit) -> None:
        self.split = split
        self.hotness = tuple(split.hotness)
        self.columns = sum(split.hotness)
        self.id_dtype = "int64" if split.has_hashes else "int32"
        self.list_places = tuple(split.list_places) if all(each == 1 for each in split.hotness) else ()
        self.features = len(self.hotness) + len(self.list_places)
        first = split.arrays(0) if len(split.starts) > 1 else None
        self.id_order: IdOrder = _order_of(first, self.hotness)
        lists = None if first is None else first.lists
        self.value_dtype = "int32" if lists is None else lists.values.dtype.name
        self.has_value_weights = lists is not None and lists.weights is not None

    def shape_of(self, load: WindowLoad) -> LoadShape:
        """Return the sizes of a load's arrays."""
        totals = [0] * len(self.list_places)
        for _, index, rows in self._pieces(load) if totals else ():
            lists = self.split.arrays(index).lists
            assert lists is not None  # noqa: S101 - for the type checker: there are places of some
            for feature in range(len(totals)):
                ends = lists.offsets[feature]
                totals[feature] += int(ends[rows.stop]) - int(ends[rows.start])
        return LoadShape(load.rows, len(load.ranges), tuple(totals))

    def sections(self, shape: LoadShape) -> dict[str, Section]:
        """Return where each array of a load is, by name."""
        rows = shape.rows
        labels = (rows, self.split.tasks) if self.split.tasks else (rows,)
        ids = {
            "columns": (self.columns, rows),
            "rows": (rows, self.columns),
            "bags": (rows * self.columns,),
        }
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {
            "ends": ("int64", (shape.ranges,)),
            "shifts": ("int64", (shape.ranges,)),
            "dense": ("float32", (rows, self.split.num_dense)),
            "ids": (self.id_dtype, ids[self.id_order]),
            "labels": ("float32", labels),
        }
        if self.split.is_weighted:
            arrays["weights"] = ("float32", (rows,))
        if self.list_places:
            total = sum(shape.list_ids)
            arrays["lengths"] = ("int32", (len(self.list_places), rows))
            arrays["values"] = (self.value_dtype, (total,))
            if self.has_value_weights:
                arrays["value_weights"] = ("float32", (total,))
        return _placed(arrays)

    def fill(self, load: WindowLoad, shape: LoadShape, out: Mapping[str, npt.NDArray[Any]]) -> None:
        """Copy the rows of a load into a buffer's arrays; large copies, which release the GIL."""
        sizes = [each.stop - each.start for each in load.ranges]
        starts = list(accumulate(sizes, initial=0))
        out["ends"][:] = starts[1:]
        out["shifts"][:] = [each.start - at for each, at in zip(load.ranges, starts, strict=False)]
        cursors = list(accumulate(shape.list_ids, initial=0))
        for at, index, rows in self._pieces(load):
            arrays = self.split.arrays(index)
            there, here = slice(at, at + rows.stop - rows.start), slice(rows.start, rows.stop)
            out["dense"][there] = arrays.dense[here]
            out["labels"][there] = arrays.labels[here]
            if arrays.weights is not None and "weights" in out:
                out["weights"][there] = arrays.weights[here]
            self._fill_ids(out["ids"], arrays, there, here, shape.rows)
            self._fill_lists(out, arrays, there, here, cursors)

    def bags(self, ids: Tensor, rows: int) -> Iterator[Tensor]:
        """Yield the ids [rows, hotness] of each feature from a buffer of bags."""
        for first, hotness in zip(accumulate(self.hotness, initial=0), self.hotness, strict=False):
            yield ids[first * rows : (first + hotness) * rows].view(rows, hotness)

    def _fill_ids(
        self, out: npt.NDArray[Any], arrays: RowArrays, there: slice, here: slice, rows: int
    ) -> None:
        ids = arrays.sparse
        if self.id_order == "columns":
            out[:, there] = ids[:, here]
        elif self.id_order == "rows":
            out[there] = ids.rows[here]  # type: ignore[attr-defined] # _order_of looked
        else:
            first = 0
            for each in ids.features:  # type: ignore[attr-defined] # as above
                hotness = each.shape[1]
                out[first * rows : (first + hotness) * rows].reshape(rows, hotness)[there] = each[here]
                first += hotness

    def _fill_lists(
        self,
        out: Mapping[str, npt.NDArray[Any]],
        arrays: RowArrays,
        there: slice,
        here: slice,
        cursors: list[int],
    ) -> None:
        lists = arrays.lists
        if lists is None:
            return
        for feature in range(len(self.list_places)):
            ends = lists.offsets[feature, here.start : here.stop + 1]
            np.subtract(ends[1:], ends[:-1], out=out["lengths"][feature, there], casting="unsafe")
            first, last, at = int(ends[0]), int(ends[-1]), cursors[feature]
            cursors[feature] = at + last - first
            out["values"][at : cursors[feature]] = lists.values[first:last]
            if lists.weights is not None and self.has_value_weights:
                out["value_weights"][at : cursors[feature]] = lists.weights[first:last]

    def _pieces(self, load: WindowLoad) -> Iterator[tuple[int, int, RowRange]]:
        """Yield (offset in the load, shard, rows of the shard)."""
        at = 0
        for each in load.ranges:
            for offset, index, rows in pieces_of(self.split, each):
                yield at + offset, index, rows
            at += each.stop - each.start


def arrays_in(buffer: npt.NDArray[np.uint8], sections: Mapping[str, Section]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a buffer."""
    return {
        name: buffer[each.at : each.at + each.size].view(each.dtype).reshape(each.shape)
        for name, each in sections.items()
    }


def tensors_in(buffer: Tensor, sections: Mapping[str, Section]) -> dict[str, Tensor]:
    """Return the arrays of a buffer on a device."""
    return {
        name: buffer[each.at : each.at + each.size].view(_DTYPES[each.dtype]).view(each.shape)
        for name, each in sections.items()
    }


def size_of(sections: Mapping[str, Section]) -> int:
    """Return the bytes of a buffer."""
    return max(each.at + each.size for each in sections.values())


def _placed(arrays: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, Section]:
    placed: dict[str, Section] = {}
    at = 0
    for name, (dtype, shape) in arrays.items():
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        placed[name] = Section(at, size, dtype, tuple(shape))
        at += -(-size // _ALIGNMENT) * _ALIGNMENT
    return placed


def _order_of(first: RowArrays | None, hotness: Sequence[int]) -> IdOrder:
    """Return how ids are stored, so that the CPU copies adjacent bytes."""
    ids = None if first is None else first.sparse
    if getattr(ids, "rows", None) is not None and all(each == 1 for each in hotness):
        return "rows"
    return "bags" if hasattr(ids, "features") else "columns"
