"""A vocabulary that grows with the data of each day, while the ids of its values stay.

New values are appended, the most frequent first. A value that was in no training row of the last days may
give its id to a new one, so that the vocabulary, and the model's table, stay as large as what is in use.

    DATASET/vocabulary/city.seen.npy    int32 [values]: the number of the last preparation that had each

Preparations are counted from 1, from one dataset to the next one that grows from it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cloudrec.data.format.encoding import AGAIN, FOLDER, Growth
from cloudrec.data.format.shards import header_of
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec.data.format.manifest import ShardFile
    from cloudrec.data.format.shards import Disk
    from cloudrec.data.vocabulary import KnownVocabulary


class GrownVocabulary(NamedTuple):
    """A vocabulary, and when its values were in training rows.

    Attributes:
        values: in the order of ids.
        last_seen: int32 [values], the number of the last preparation whose training rows had the value.
        kept: the values whose ids they had before.
        replaced: the values that gave their ids to new ones.
    """

    values: list[str]
    last_seen: npt.NDArray[np.int32]
    kept: int
    replaced: int


class GrowingVocabularies:
    """The vocabularies of a dataset's tables, as they grow by one preparation."""

    def __init__(self, known: KnownVocabulary, *, forget_after: int | None) -> None:
        growth = known.encoding.growth
        self.generation = 1 if growth is None else growth.generation + 1
        self._forget_after = forget_after
        self._seen = {} if growth is None else known.seen
        self._written: dict[str, ShardFile] = {}

    @property
    def growth(self) -> Growth:
        """The record of this preparation, once all tables have grown."""
        return Growth(generation=self.generation, files=dict(self._written))

    def grow(
        self,
        disk: Disk,
        table: str,
        values: Sequence[str],
        found: Sequence[str],
        newcomers: Sequence[str],
        *,
        max_size: int | None,
    ) -> list[str]:
        """Return a table's vocabulary after this preparation, and record what was seen; see `grow`.

        Raises:
            DataError: the record of the preparations before does not fit the vocabulary.
        """
        grown = grow(
            values,
            self._last_seen(table, len(values)),
            found,
            newcomers,
            max_size=max_size,
            generation=self.generation,
            forget_after=self._forget_after,
        )
        self._write(disk, table, grown.last_seen)
        return grown.values

    def grow_codes(
        self,
        disk: Disk,
        table: str,
        codes: npt.NDArray[np.uint32],
        found: npt.NDArray[np.uint32],
        newcomers: npt.NDArray[np.uint32],
    ) -> npt.NDArray[np.uint32]:
        """Return a vocabulary of distinct codes after this preparation; see `grow`.

        Raises:
            DataError: the record of the preparations before does not fit the vocabulary.
        """
        last_seen = self._last_seen(table, len(codes))
        known = np.flatnonzero(np.isin(codes, found))
        new = newcomers[~np.isin(newcomers, codes)]
        grown = place(
            last_seen,
            known,
            len(new),
            max_size=None,
            generation=self.generation,
            forget_after=self._forget_after,
        )
        values = np.empty(len(grown.last_seen), np.uint32)
        values[: len(codes)] = codes
        values[grown.places] = new[: len(grown.places)]
        self._write(disk, table, grown.last_seen)
        return values

    def _write(self, disk: Disk, table: str, seen: npt.NDArray[np.int32]) -> None:
        header, body = memoryview(header_of(seen.dtype, seen.shape)), seen.view(np.uint8).data
        self._written[table] = disk.write(f"{FOLDER}/{table}.seen.npy", header, body)

    def _last_seen(self, table: str, size: int) -> npt.NDArray[np.int32]:
        data = self._seen.get(table)
        if data is None:  # the first one that grows, or an export, which has no record: seen just before
            return np.full(size, self.generation - 1, np.int32)
        try:
            seen: npt.NDArray[np.int32] = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, OSError) as error:
            raise DataError(f"cannot read {table}.seen.npy: {error}", remedy=AGAIN) from error
        if seen.dtype.str != "<i4" or seen.shape != (size,):
            raise DataError(
                f"{table}.seen.npy holds {seen.dtype} {seen.shape}, not int32 {(size,)}", remedy=AGAIN
            )
        return seen


def grow(
    values: Sequence[str],
    last_seen: npt.NDArray[np.int32],
    found: Sequence[str],
    newcomers: Sequence[str],
    *,
    max_size: int | None,
    generation: int,
    forget_after: int | None,
) -> GrownVocabulary:
    """Return a vocabulary with the values of more training rows.

    Args:
        values: the vocabulary so far, in the order of ids.
        last_seen: when each was in training rows.
        found: the values in the new training rows.
        newcomers: those of them that may enter the vocabulary, the most frequent first.
        max_size: the most values; None: any number.
        generation: the number of this preparation, above all in `last_seen`.
        forget_after: a value that was in none of so many preparations, this one included, may give its id
            to a new one; None: never.
    """
    places = {value: number for number, value in enumerate(values)}
    known = np.array([places[value] for value in found if value in places], np.int64)
    new = [value for value in newcomers if value not in places]
    placed = place(
        last_seen,
        known,
        len(new),
        max_size=max_size,
        generation=generation,
        forget_after=forget_after,
    )
    grown = [*values, *[""] * (len(placed.last_seen) - len(values))]
    for number, value in zip(placed.places.tolist(), new, strict=False):
        grown[number] = value
    replaced = int(np.count_nonzero(placed.places < len(values)))
    return GrownVocabulary(
        values=grown, last_seen=placed.last_seen, kept=len(values) - replaced, replaced=replaced
    )


class Placed(NamedTuple):
    """Where new values of a vocabulary are put.

    Attributes:
        places: int64, of the first new values, in their order: those of idle values, then new places.
        last_seen: int32 [values], of the grown vocabulary.
    """

    places: npt.NDArray[np.int64]
    last_seen: npt.NDArray[np.int32]


def place(
    last_seen: npt.NDArray[np.int32],
    known: npt.NDArray[np.int64],
    new: int,
    *,
    max_size: int | None,
    generation: int,
    forget_after: int | None,
) -> Placed:
    """Give places to new values; see `grow`.

    Args:
        last_seen: when each value of the vocabulary so far was in training rows.
        known: the places of those in the new training rows.
        new: how many values may enter the vocabulary.
        max_size: the most values; None: any number.
        generation: the number of this preparation.
        forget_after: as for `grow`.
    """
    seen = last_seen.astype(np.int32, copy=True)
    seen[known] = generation
    idle = _idle(seen, generation, forget_after)[:new]
    seen[idle] = generation
    more = new - len(idle)
    if max_size is not None:
        more = min(more, max(max_size - len(seen), 0))
    return Placed(
        np.concatenate([idle, np.arange(len(seen), len(seen) + more)]),
        np.concatenate([seen, np.full(more, generation, np.int32)]),
    )


def _idle(seen: npt.NDArray[np.int32], generation: int, forget_after: int | None) -> npt.NDArray[np.int64]:
    """Return the places of values that may give way, those seen longest ago first."""
    if forget_after is None:
        return np.empty(0, np.int64)
    places = np.flatnonzero(seen <= generation - forget_after)
    return places[np.argsort(seen[places], kind="stable")]
