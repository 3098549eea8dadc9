"""Managed collision: ids of 63 bits get rows of a table, one each while there are some.

A new id takes a free row. If there is none, it takes the row of another id that is not in this step, whose
vector and optimizer state then start again. Row 0 is for missing values, row 1 for ids without a row: of a
step with more ids than rows, and of scoring, which changes nothing.

All ranks have the whole mapping, and learn the ids of all ranks' samples in each step, as a set with counts.
So the mapping depends on the samples of the steps only, not on ranks, plans or the order within a step.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from cloudrec_contract.features import FIRST_ID, MISSING_ID, UNKNOWN_ID
from trainer.base.entry import Entry, TensorShard
from trainer.base.errors import ConfigError
from trainer.base.row_stamps import RowStamps
from trainer.data.splitmix import mix_key, splitmix64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    from trainer.base.distributed import World
    from trainer.base.entry import State
    from trainer.base.row_stamps import Intervals

    Ids = npt.NDArray[np.int64]

_FREE = 0  # of a row without an id; no hash is 0
_RECENT_SHARE = 16  # ids newer than the index are at most this part of it
_LEAST_RECENT = 4096
_FORESEEN = 16  # steps whose rows a look finds
_LOOK_SHARE = 64  # and at least this part of a table
_MOST_TOUCHED = 4  # touched rows are at most this part of a table


class Seen(NamedTuple):
    """The different ids of a step, ascending, and how often each occurs."""

    ids: Ids
    counts: Ids


class Moved(NamedTuple):
    """Rows that another id had before."""

    rows: Ids
    ids: Ids  # the new ones


class ManagedTable:
    """The rows of one table's ids.

    Attributes:
        ids: of each row; 0 if it is free.
        counts: how often the row's id has occurred since it got the row.
        last: the number of the last step in which it occurred, from 1.
        stamps: of the rows that a step changes, for incremental checkpoints.
    """

    def __init__(self, rows: int, *, eviction: str = "lfu") -> None:
        self.ids = torch.zeros(rows, dtype=torch.int64)
        self.counts = torch.zeros(rows, dtype=torch.int64)
        self.last = torch.zeros(rows, dtype=torch.int64)
        self.stamps: RowStamps | None = None
        self._candidates = _Candidates(self, eviction)
        self._sorted, self._recent = _Index.of(self), _Index.empty()
        self._free = FIRST_ID  # rows from here on were never taken

    def reindex(self) -> None:
        """Find the rows again after `ids` was filled from elsewhere."""
        self._sorted, self._recent = _Index.of(self), _Index.empty()
        taken = np.flatnonzero(self.ids.numpy() != _FREE)
        self._free = max(FIRST_ID, int(taken.max(initial=0)) + 1)
        self._candidates.forget()

    def find(self, ids: Ids) -> Ids:
        """Return the rows of ids: 0 for 0, and 1 for those that have none."""
        rows = self._recent.find(ids)
        older = np.flatnonzero(rows < 0)
        rows[older] = self._sorted.find(ids[older])
        rows[rows < 0] = UNKNOWN_ID
        stale = self.ids.numpy()[rows] != ids  # the row has another id by now
        rows[stale] = UNKNOWN_ID
        rows[ids == _FREE] = MISSING_ID
        return rows

    def learn(self, seen: Seen, step: int) -> Moved:
        """Give the ids of a step rows, as far as there are some, and count them.

        Args:
            seen: the ids, without 0.
            step: its number, from 1.
        """
        counts, last = self.counts.numpy(), self.last.numpy()
        rows = self.find(seen.ids)
        known = rows >= FIRST_ID
        counts[rows[known]] += seen.counts[known]
        last[rows[known]] = step
        new, often = seen.ids[~known], seen.counts[~known]
        order = np.lexsort((new, -often))  # the most frequent first: the last ones may find no row
        new, often = new[order], often[order]
        free = np.arange(self._free, min(self._free + len(new), len(counts)))
        self._free += len(free)
        last[free] = step  # so that none of them is given up
        self._candidates.touch(np.concatenate([rows[known], free]))
        taken = self._candidates.take(len(new) - len(free), step)
        places = np.concatenate([free, taken])
        new, often = new[: len(places)], often[: len(places)]
        self.ids.numpy()[places] = new
        counts[places], last[places] = often, step
        if self.stamps is not None:
            self.stamps.touch(torch.from_numpy(np.concatenate([rows[known], places])))
        self._recent = self._recent.joined(new, places)
        if len(self._recent) > max(_LEAST_RECENT, len(self._sorted) // _RECENT_SHARE):
            self._sorted, self._recent = _Index.of(self), _Index.empty()
        return Moved(taken, new[len(free) :])


class _Candidates:
    """Finds the rows that give way first, without a look at the whole table in each step.

    A look sorts the rows whose first key is at most a limit. Until the next one, a row that was touched since
    is compared by its new keys, and the others by their place; all further rows come after the limit.
    """

    def __init__(self, table: ManagedTable, eviction: str) -> None:
        self._table = table
        self._eviction = eviction
        self._queue = np.empty(0, np.int64)
        self._at = 0  # rows of the queue before it were touched
        self._limit = -1
        self._is_touched: npt.NDArray[np.bool_] = np.zeros(len(table.ids), np.bool_)
        self._touched: list[Ids] = []
        self._count = 0  # of touched rows
        self._is_known = False  # whether there was a look

    def forget(self) -> None:
        """Look again before the next use."""
        self._is_known = False

    def touch(self, rows: Ids) -> None:
        """Note that the keys of rows have changed."""
        if self._is_known:
            new = rows[~self._is_touched[rows]]
            self._is_touched[new] = True
            self._touched.append(new)
            self._count += len(new)

    def take(self, wanted: int, step: int) -> Ids:
        """Return the rows, at most as many as wanted, whose ids give way, those of this step never."""
        if wanted <= 0:
            return np.empty(0, np.int64)
        found = None
        if self._is_known and self._count <= len(self._table.ids) // _MOST_TOUCHED:
            found = self._first(wanted, step)
        if found is None or len(found) < wanted:
            self._look(wanted, step)
            found = self._first(wanted, step)
        self.touch(found)
        return found

    def _keys(self) -> tuple[Ids, Ids]:
        counts, last = self._table.counts.numpy(), self._table.last.numpy()
        return (counts, last) if self._eviction == "lfu" else (last, counts)

    def _look(self, wanted: int, step: int) -> None:
        """Sort the rows that come first now."""
        first, second = self._keys()
        is_new = self._table.last.numpy()[FIRST_ID:] >= step
        older = FIRST_ID + np.flatnonzero(~is_new)
        size = max(_FORESEEN * wanted, len(older) // _LOOK_SHARE)
        self._limit = np.iinfo(np.int64).max
        if size < len(older):
            self._limit = int(np.partition(first[older], size)[size])
            older = older[first[older] <= self._limit]
        self._queue = older[np.lexsort((older, second[older], first[older]))]
        self._at = 0
        self._is_touched[:] = False
        self._touched, self._count, self._is_known = [], 0, True
        self.touch(FIRST_ID + np.flatnonzero(is_new))

    def _first(self, wanted: int, step: int) -> Ids:
        """Return the first rows up to the limit, at most as many as wanted."""
        first, second = self._keys()
        while self._at < len(self._queue) and self._is_touched[self._queue[self._at]]:
            self._at += 1
        parts: list[Ids] = []
        place, count = self._at, 0
        while count < wanted and place < len(self._queue):
            part = self._queue[place : place + wanted]
            place += len(part)
            part = part[~self._is_touched[part]]
            parts.append(part)
            count += len(part)
        if len(self._touched) > 1:
            self._touched = [np.concatenate(self._touched)]
        for rows in self._touched:
            is_old = (first[rows] <= self._limit) & (self._table.last.numpy()[rows] < step)
            parts.append(rows[is_old])
        every = np.concatenate(parts) if parts else np.empty(0, np.int64)
        order = np.lexsort((every, second[every], first[every]))
        return every[order[:wanted]]


class _Index:
    """Ids, ascending, and their rows."""

    def __init__(self, ids: Ids, rows: Ids) -> None:
        self._ids = ids
        self._rows = rows

    def __len__(self) -> int:
        return len(self._ids)

    @classmethod
    def empty(cls) -> _Index:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, table: ManagedTable) -> _Index:
        ids = table.ids.numpy()
        rows = np.flatnonzero(ids != _FREE)
        rows = rows[np.argsort(ids[rows], kind="stable")]
        return cls(ids[rows], rows)

    def find(self, ids: Ids) -> Ids:
        """Return the rows; -1 for unknown ids."""
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        places = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
        return np.where(self._ids[places] == ids, self._rows[places], -1)

    def joined(self, ids: Ids, rows: Ids) -> _Index:
        """Return an index that has these, too; of an id that is in both, the new row counts."""
        every, first = np.unique(np.concatenate([ids, self._ids]), return_index=True)
        return _Index(every, np.concatenate([rows, self._rows])[first])


class ManagedIds:
    """Replaces the ids of managed tables in a model's input by rows."""

    def __init__(
        self,
        tables: Sequence[str],
        rows: Mapping[str, int],
        tables_of_keys: Mapping[str, str],
        *,
        eviction: str = "lfu",
    ) -> None:
        """`rows` are those of each table, `tables_of_keys` the table of each key.

        Raises:
            ConfigError: a table has no row for an id.
        """
        for table in tables:
            if rows[table] <= FIRST_ID:
                raise ConfigError(
                    f"the table {table} has {rows[table]} rows, of which two are for missing and for unknown "
                    f"values; encoding managed_collision needs at least {FIRST_ID + 1}"
                )
        self.tables = {table: ManagedTable(rows[table], eviction=eviction) for table in tables}
        self._of_keys = {key: table for key, table in tables_of_keys.items() if table in self.tables}

    def entries(self) -> dict[str, Entry]:
        """Return the mapping by canonical name, as live views."""
        return {
            f"managed/{name}/{part}": _replicated(tensor, table.stamps)
            for name, table in self.tables.items()
            for part, tensor in (("ids", table.ids), ("counts", table.counts), ("last", table.last))
        }

    def track(self, intervals: Intervals) -> None:
        """Stamp the rows that change from here on."""
        for table in self.tables.values():
            table.stamps = RowStamps(intervals.add(len(table.ids), torch.device("cpu")), intervals)

    def reindex(self) -> None:
        """Take over what was written to `entries`."""
        for table in self.tables.values():
            table.reindex()

    def apply(self, sparse: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """Return the same input with rows for ids."""
        values = sparse.values().clone()
        for key, part in self._parts(sparse):
            ids = values[part].numpy()
            values[part] = torch.from_numpy(self.tables[self._of_keys[key]].find(ids))
        return type(sparse)(
            keys=sparse.keys(),
            values=values,
            weights=sparse.weights_or_none(),
            lengths=sparse.lengths(),
            offsets=sparse.offsets(),
            stride=sparse.stride(),
            length_per_key=sparse.length_per_key(),
            offset_per_key=sparse.offset_per_key(),
        )

    def seen(self, sparse: KeyedJaggedTensor) -> dict[str, Seen]:
        """Return the ids of an input, by table; without missing ones."""
        found: dict[str, list[Ids]] = {table: [] for table in self.tables}
        for key, part in self._parts(sparse):
            found[self._of_keys[key]].append(sparse.values()[part].numpy())
        return {table: _counted(np.concatenate(parts), None) for table, parts in found.items()}

    def _parts(self, sparse: KeyedJaggedTensor) -> Iterable[tuple[str, slice]]:
        ends = sparse.offset_per_key()
        for place, key in enumerate(sparse.keys()):
            if key in self._of_keys:
                yield key, slice(ends[place], ends[place + 1])


class ManagedTraining:
    """Learns the ids of each step, before the step."""

    def __init__(self, managed: ManagedIds, world: World, state: State, *, seed: int, scale: float) -> None:
        """`state` has this rank's pieces of the tables; see trainer.sharding.state."""
        self._managed = managed
        self._world = world
        self._state = state
        self._seed = seed
        self._scale = scale

    @torch.no_grad()
    def learn(self, sparse: KeyedJaggedTensor, step: int) -> KeyedJaggedTensor:
        """Return an input with rows for ids, which all ranks have learned before. Collective."""
        every = self._gather(self._managed.seen(sparse))
        for name, table in self._managed.tables.items():
            parts = [each[name] for each in every]
            ids, counts = (np.concatenate([part[place] for part in parts]) for place in range(2))
            moved = table.learn(_counted(ids, counts), step + 1)
            if len(moved.rows):
                self._renew(name, moved)
        return self._managed.apply(sparse)

    def _gather(self, mine: dict[str, Seen]) -> list[dict[str, Seen]]:
        if self._world.size == 1:
            return [mine]
        every: list[dict[str, Seen]] = [{} for _ in range(self._world.size)]
        distributed.all_gather_object(every, mine, group=self._world.control)
        return every

    def _renew(self, table: str, moved: Moved) -> None:
        """Set this rank's part of rows to a new start, which depends on the seed, the table and the id."""
        for name, entry in self._state.items():
            if not name.startswith(f"tables/{table}/"):
                continue
            for shard in entry.shards:
                first, count = shard.offsets[0], shard.tensor.shape[0]
                chosen = (moved.rows >= first) & (moved.rows < first + count)
                rows = torch.from_numpy(moved.rows[chosen] - first).to(shard.tensor.device)
                if shard.stamps is not None:
                    shard.stamps.touch(rows.to(shard.stamps.values.device))
                if name.endswith("/weight"):
                    drawn = fresh_vectors(
                        table, moved.ids[chosen], entry.shape, seed=self._seed, scale=self._scale
                    )
                    left = shard.offsets[1]
                    values = drawn[:, left : left + shard.tensor.shape[1]]
                    shard.tensor[rows] = values.to(shard.tensor.device, shard.tensor.dtype)
                else:
                    shard.tensor[rows] = 0


def fresh_vectors(table: str, ids: Ids, shape: tuple[int, ...], *, seed: int, scale: float) -> Tensor:
    """Return the vectors [ids, width] with which ids take rows that others had.

    They are uniform in +-scale/sqrt(rows), as the initial tables, and depend on the seed, the table and the
    id only.

    Args:
        table: its name.
        ids: the ids.
        shape: of the table, rows and width.
        seed: of the run.
        scale: `embedding_init_scale`.
    """
    rows, width = shape
    name = int.from_bytes(hashlib.sha256(table.encode()).digest()[:8], "little")
    start = splitmix64(ids.view(np.uint64) ^ np.uint64(mix_key(seed, name)))
    columns = splitmix64(np.arange(width, dtype=np.uint64))
    numbers = splitmix64(start[:, None] ^ columns)
    parts = (numbers >> np.uint64(40)).astype(np.float64) / (1 << 24)
    bound = scale / rows**0.5
    return torch.from_numpy(((2 * parts - 1) * bound).astype(np.float32))


def _counted(ids: Ids, counts: Ids | None) -> Seen:
    """Return each id once, without 0, with the sum of its counts; of one each without `counts`."""
    every, places = np.unique(ids, return_inverse=True)
    each = None if counts is None else counts.astype(np.float64)
    sums = np.bincount(places, weights=each, minlength=len(every)).astype(np.int64)
    start = int(len(every) > 0 and every[0] == _FREE)
    return Seen(every[start:], sums[start:])


def _replicated(tensor: Tensor, stamps: RowStamps | None) -> Entry:
    return Entry(shape=tuple(tensor.shape), shards=(TensorShard(tensor, (0,), stamps),), replicated=True)
