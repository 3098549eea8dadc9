"""Shards of a dataset with a feature schema: rows are collected in memory and written as .npy files.

shard-00000.labels.npy    uint8   [rows], or [labels, rows] if there are several; 255: the row has none
shard-00000.weights.npy   float32 [rows], if the schema names a column of weights
shard-00000.dense.npy     float32 [rows, dense features]
shard-00000.sparse.npy    int32   [single features, rows]
shard-00000.offsets.npy   int64   [multi_hot features, rows + 1], if there are any
shard-00000.values.npy    int32   [ids of all lists]: those of a row begin at its offset
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cloudrec.data.format import manifest
from cloudrec.data.format.shards import header_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec.data.format.shards import Disk


class EncodedRows(NamedTuple):
    """Encoded rows of one split."""

    labels: npt.NDArray[np.uint8]  # [rows], or [labels, rows]
    dense: npt.NDArray[np.float32]  # [rows, features]
    sparse: npt.NDArray[np.int32]  # [single features, rows]
    lists: Sequence[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]  # of each: lengths, ids
    weights: npt.NDArray[np.float32] | None = None  # [rows]

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
                None if self.weights is None else self.weights[:count],
            ),
            EncodedRows(
                self.labels[..., count:],
                self.dense[count:],
                self.sparse[:, count:],
                [(lengths[count:], ids[cut:]) for (lengths, ids), cut in pairs],
                None if self.weights is None else self.weights[count:],
            ),
        )


class SplitWriter:
    """Writes the shards of a split; holds the rows of one shard."""

    def __init__(self, disk: Disk, name: str, *, shard_rows: int, tasks: int) -> None:
        """`tasks` is the number of labels if there are several, otherwise 0."""
        self.rows = 0
        self.positives: npt.NDArray[np.int64] = np.zeros(
            tasks or (), np.int64
        )  # of each label if there are several
        self.shards: list[manifest.DatasetShard] = []
        self._disk = disk
        self._name = name
        self._room = self._shard_rows = shard_rows
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
                self._write()

    def finish(self) -> dict[str, Any]:
        """Write the rest; return the split's object in dataset.json."""
        if self._waiting:
            self._write()
        return {
            "rows": self.rows,
            "positives": self.positives.tolist(),
            "shards": [shard.to_json() for shard in self.shards],
        }

    def _write(self) -> None:
        parts, self._waiting, self._room = self._waiting, [], self._shard_rows
        arrays: dict[str, npt.NDArray[Any]] = {
            "labels": np.concatenate([part.labels for part in parts], axis=-1),
            "dense": np.concatenate([part.dense for part in parts]),
            "sparse": np.concatenate([part.sparse for part in parts], axis=1),
        }
        weights = [part.weights for part in parts if part.weights is not None]
        if weights:
            arrays["weights"] = np.concatenate(weights)
        count = len(arrays["dense"])
        if lists := len(parts[0].lists):
            lengths = [np.concatenate([part.lists[each][0] for part in parts]) for each in range(lists)]
            ends = np.cumsum(np.concatenate(lengths), dtype=np.int64).reshape(lists, count)
            firsts = np.concatenate([[0], ends[:-1, -1]])[:, None]
            arrays["offsets"] = np.concatenate([firsts, ends], axis=1)
            arrays["values"] = np.concatenate(
                [part.lists[each][1] for each in range(lists) for part in parts]
            )
        name = f"{self._name}/shard-{len(self.shards):05d}"
        files = {kind: self._file(f"{name}.{kind}.npy", array) for kind, array in arrays.items()}
        self.shards.append(manifest.DatasetShard(name=name, rows=count, files=files))

    def _file(self, path: str, array: npt.NDArray[Any]) -> manifest.ShardFile:
        array = np.ascontiguousarray(array)
        header = memoryview(header_of(array.dtype, array.shape))
        parts = [array.reshape(-1).view(np.uint8).data] if array.size else []
        return self._disk.write(path, header, *parts)
