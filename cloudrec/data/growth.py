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
        seen = grown.last_seen
        header, body = memoryview(header_of(seen.dtype, seen.shape)), seen.view(np.uint8).data
        self._written[table] = disk.write(f"{FOLDER}/{table}.seen.npy", header, body)
        return grown.values

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
    grown, seen = list(values), last_seen.astype(np.int32, copy=True)
    places = {value: place for place, value in enumerate(grown)}
    seen[[places[value] for value in found if value in places]] = generation
    new = [value for value in newcomers if value not in places]
    idle = _idle(seen, generation, forget_after)[: len(new)]
    for place, value in zip(idle, new, strict=False):
        grown[place] = value
        seen[place] = generation
    room = len(new) if max_size is None else max(max_size - len(grown), 0)
    more = new[len(idle) :][:room]
    return GrownVocabulary(
        values=grown + more,
        last_seen=np.concatenate([seen, np.full(len(more), generation, np.int32)]),
        kept=len(values) - len(idle),
        replaced=len(idle),
    )


def _idle(seen: npt.NDArray[np.int32], generation: int, forget_after: int | None) -> npt.NDArray[np.int64]:
    """Return the places of values that may give way, those seen longest ago first."""
    if forget_after is None:
        return np.empty(0, np.int64)
    places = np.flatnonzero(seen <= generation - forget_after)
    return places[np.argsort(seen[places], kind="stable")]
