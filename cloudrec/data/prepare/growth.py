"""A vocabulary that grows with the data of each day, while the ids of its values stay.

New values are appended, the most frequent first. A value that was in no training row of the last days may
give its id to a new one, so that the vocabulary, and the model's table, stay as large as what is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from cloudrec.data.prepare.table_values import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec_contract.features import SparseFeature


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


def grow(
    values: Sequence[str],
    last_seen: npt.NDArray[np.int32],
    counts: pa.Table,
    feature: SparseFeature,
    *,
    generation: int,
    forget_after: int | None,
) -> GrownVocabulary:
    """Return a vocabulary with the values of more training rows.

    Args:
        values: the vocabulary so far, in the order of ids.
        last_seen: when each was in training rows.
        counts: `value` and `count` of the new training rows.
        feature: `min_frequency` and `max_size` decide which new values are taken.
        generation: the number of this preparation, above all in `last_seen`.
        forget_after: a value that was in none of so many preparations, this one included, may give its id
            to a new one; None: never.
    """
    grown, seen = list(values), last_seen.astype(np.int32, copy=True)
    places = {value: place for place, value in enumerate(grown)}
    found = [places[value] for value in counts["value"].to_pylist() if value in places]
    seen[found] = generation
    is_new = pa.array([value not in places for value in counts["value"].to_pylist()], pa.bool_())
    new = vocabulary_of(counts.filter(is_new), feature)
    idle = _idle(seen, generation, forget_after)[: len(new)]
    for place, value in zip(idle, new, strict=False):
        grown[place] = value
        seen[place] = generation
    room = len(new) if feature.max_size is None else max(feature.max_size - len(grown), 0)
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
