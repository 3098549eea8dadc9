"""Shards of a dataset with a feature schema: rows are collected in memory and written as .npy files.

shard-00000.labels.npy    uint8   [rows], or [labels, rows] if there are several; 255: the row has none
shard-00000.weights.npy   float32 [rows], if the schema names a column of weights
shard-00000.dense.npy     float32 [rows, dense features]
shard-00000.sparse.npy    int32   [single features, rows]; int64 if some are hashes (managed_collision)
shard-00000.offsets.npy   int64   [multi_hot features, rows + 1], if there are any
shard-00000.values.npy    int32   [ids of all lists], likewise: those of a row begin at its offset
shard-00000.value_weights.npy   float32 [ids of all lists], if a feature has weights; otherwise 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from cloudrec.data.format import manifest
from cloudrec.data.format.shards import header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.format.shards import Disk


class EncodedRows(NamedTuple):
    """Encoded rows of one split."""

    labels: npt.NDArray[np.uint8]  # [rows], or [labels, rows]
    dense: npt.NDArray[np.float32]  # [rows, features]
    sparse: npt.NDArray[np.signedinteger[Any]]  # [single features, rows]: ids, or codes while counting
    lists: Sequence[tuple[npt.NDArray[np.int32], npt.NDArray[np.signedinteger[Any]]]]  # lengths, ids or codes
    raw: npt.NDArray[np.float64]  # [features, rows]: numbers whose transform is not known yet
    weights: npt.NDArray[np.float32] | None = None  # [rows]
    list_weights: Sequence[npt.NDArray[np.float32]] = ()  # of the ids of each list, if a feature has some

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.dense)

    def split(self, count: int) -> tuple[EncodedRows, EncodedRows]:
        """Return the first rows, and the others."""
        cuts = [int(lengths[:count].sum()) for lengths, _ in self.lists]
        pairs = list(zip(self.lists, cuts, strict=True))
        return (
            EncodedRows(
                self.labels[..., :count],
                self.dense[:count],
                self.sparse[:, :count],
                [(lengths[:count], ids[:cut]) for (lengths, ids), cut in pairs],
                self.raw[:, :count],
                None if self.weights is None else self.weights[:count],
                [each[:cut] for each, cut in zip(self.list_weights, cuts, strict=False)],
            ),
            EncodedRows(
                self.labels[..., count:],
                self.dense[count:],
                self.sparse[:, count:],
                [(lengths[count:], ids[cut:]) for (lengths, ids), cut in pairs],
                self.raw[:, count:],
                None if self.weights is None else self.weights[count:],
                [each[cut:] for each, cut in zip(self.list_weights, cuts, strict=False)],
            ),
        )

    def chosen(self, rows: npt.NDArray[np.bool_]) -> EncodedRows:
        """Return some of the rows."""
        if rows.all():
            return self
        places = np.flatnonzero(rows)  # faster than a mask
        return EncodedRows(
            self.labels.take(places, axis=-1),
            self.dense[places],
            self.sparse.take(places, axis=1),
            [(lengths[places], ids[np.repeat(rows, lengths)]) for lengths, ids in self.lists],
            self.raw.take(places, axis=1),
            None if self.weights is None else self.weights[places],
            [
                each[np.repeat(rows, lengths)]
                for each, (lengths, _) in zip(self.list_weights, self.lists, strict=False)
            ],
        )


Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"


def joined(parts: Sequence[EncodedRows]) -> Arrays:
    """Return the arrays of a shard with these rows, by kind, and `raw`."""
    arrays: Arrays = {
        "labels": np.concatenate([part.labels for part in parts], axis=-1),
        "dense": np.concatenate([part.dense for part in parts]),
        "sparse": np.concatenate([part.sparse for part in parts], axis=1),
    }
    if weights := [part.weights for part in parts if part.weights is not None]:
        arrays["weights"] = np.concatenate(weights)
    if len(parts[0].raw):
        arrays["raw"] = np.concatenate([part.raw for part in parts], axis=1)
    if lists := len(parts[0].lists):
        lengths = [np.concatenate([part.lists[each][0] for part in parts]) for each in range(lists)]
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64).reshape(lists, len(arrays["dense"]))
        firsts = np.concatenate([[0], ends[:-1, -1]])[:, None]
        arrays["offsets"] = np.concatenate([firsts, ends], axis=1)
        arrays["values"] = np.concatenate([part.lists[each][1] for each in range(lists) for part in parts])
        if parts[0].list_weights:
            arrays["value_weights"] = np.concatenate(
                [part.list_weights[each] for each in range(lists) for part in parts]
            )
    return arrays


class SplitWriter:
    """Cuts the rows of a split into shards; holds the rows of one shard.

    Args:
        put: called with the number and the arrays of each shard.
        shard_rows: the rows of each shard but the last one.
        tasks: the number of labels if there are several, otherwise 0.
        before: rows of the split that another writer has.
    """

    def __init__(
        self, put: Callable[[int, Arrays], None], *, shard_rows: int, tasks: int, before: int = 0
    ) -> None:
        self.rows = 0
        # Of each label if there are several.
        self.positives: npt.NDArray[np.int64] = np.zeros(tasks or (), np.int64)
        self.shards = before // shard_rows  # the number of the next one
        self._put = put
        self._shard_rows = shard_rows
        self._room = shard_rows - before % shard_rows
        self._waiting: list[EncodedRows] = []

    def add(self, rows: EncodedRows) -> None:
        """Append rows."""
        self.rows += rows.rows
        self.positives = self.positives + np.count_nonzero(rows.labels == 1, axis=-1)
        while rows.rows:
            part, rows = rows.split(self._room)
            self._waiting.append(part)
            self._room -= part.rows
            if not self._room:
                self._end_shard()

    def finish(self) -> None:
        """Complete the last shard."""
        if self._waiting:
            self._end_shard()

    def _end_shard(self) -> None:
        parts, self._waiting, self._room = self._waiting, [], self._shard_rows
        number, self.shards = self.shards, self.shards + 1
        self._put(number, joined(parts))


def rows_in(arrays: Arrays) -> EncodedRows:
    """Return the rows of a shard's arrays."""
    lists = [
        (np.diff(ends).astype(np.int32), arrays["values"][ends[0] : ends[-1]])
        for ends in arrays.get("offsets", ())
    ]
    raw = arrays.get("raw", np.empty((0, len(arrays["dense"]))))
    weights = arrays.get("value_weights")
    list_weights = (
        [] if weights is None else [weights[ends[0] : ends[-1]] for ends in arrays.get("offsets", ())]
    )
    return EncodedRows(
        arrays["labels"], arrays["dense"], arrays["sparse"], lists, raw, arrays.get("weights"), list_weights
    )


def write_shard(disk: Disk, split: str, number: int, arrays: Arrays) -> manifest.DatasetShard:
    """Write the files of a shard."""
    name = f"{split}/shard-{number:05d}"
    files = {kind: _file(disk, f"{name}.{kind}.npy", array) for kind, array in arrays.items()}
    return manifest.DatasetShard(name=name, rows=len(arrays["dense"]), files=files)


def keep_draft(path: Path, arrays: Arrays) -> None:
    """Write arrays to a file that `take_draft` reads."""
    with path.open("wb") as file:
        for kind, array in arrays.items():
            np.save(file, np.array(kind))
            np.save(file, array)


def take_draft(path: Path) -> Arrays:
    """Return the arrays of a draft, and remove it."""
    arrays: Arrays = {}
    with path.open("rb") as file:
        while file.peek(1):
            kind = str(np.load(file))
            arrays[kind] = np.load(file)
    path.unlink()
    return arrays


def _file(disk: Disk, path: str, array: npt.NDArray[Any]) -> manifest.ShardFile:
    array = np.ascontiguousarray(array)
    header = memoryview(header_of(array.dtype, array.shape))
    parts = [array.reshape(-1).view(np.uint8).data] if array.size else []
    return disk.write(path, header, *parts)
