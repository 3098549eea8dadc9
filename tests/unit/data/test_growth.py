"""Vocabularies that grow: ids stay, new values follow, and values that are gone make room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cloudrec.data.prepare.growth import GrownVocabulary, grow
from cloudrec_contract.features import SparseFeature


def _feature(**values: Any) -> SparseFeature:
    return SparseFeature(name="city", column="city", table="city", **{"min_frequency": 1, **values})


def _grow(
    before: GrownVocabulary,
    counts: dict[str, int],
    generation: int,
    forget_after: int | None = None,
    **keys: Any,
) -> GrownVocabulary:
    table = pa.table({"value": list(counts), "count": list(counts.values())})
    return grow(
        before.values,
        before.last_seen,
        table,
        _feature(**keys),
        generation=generation,
        forget_after=forget_after,
    )


START = GrownVocabulary(["bern", "rome", "oslo"], np.array([1, 1, 1], np.int32), 3, 0)


def test_ids_stay_and_new_values_follow_the_most_frequent_first() -> None:
    grown = _grow(START, {"rome": 1, "lima": 2, "kyiv": 5}, 2)
    assert grown.values == ["bern", "rome", "oslo", "kyiv", "lima"]
    assert grown.last_seen.tolist() == [1, 2, 1, 2, 2]
    assert (grown.kept, grown.replaced) == (3, 0)


def test_rare_new_values_stay_unknown_and_known_ones_count_as_seen() -> None:
    grown = _grow(START, {"rome": 1, "lima": 2, "kyiv": 3}, 2, min_frequency=3)
    assert grown.values == ["bern", "rome", "oslo", "kyiv"]
    assert grown.last_seen.tolist() == [1, 2, 1, 2]


def test_a_value_that_was_not_seen_gives_its_id_to_a_new_one() -> None:
    before = GrownVocabulary(["bern", "rome", "oslo"], np.array([3, 1, 2], np.int32), 3, 0)
    grown = _grow(before, {"bern": 1, "lima": 9, "kyiv": 8, "doha": 7}, 4, forget_after=2)
    assert grown.values == ["bern", "lima", "kyiv", "doha"]  # rome was seen longest ago
    assert grown.last_seen.tolist() == [4, 4, 4, 4]
    assert (grown.kept, grown.replaced) == (1, 2)


def test_a_value_keeps_its_id_while_no_other_needs_it() -> None:
    assert _grow(START, {"bern": 1}, 9, forget_after=1).values == START.values


def test_a_value_of_this_preparation_never_gives_way() -> None:
    grown = _grow(START, {"bern": 1, "rome": 1, "oslo": 1, "lima": 1}, 9, forget_after=1)
    assert grown.values == ["bern", "rome", "oslo", "lima"]


def test_the_vocabulary_is_no_larger_than_allowed() -> None:
    grown = _grow(START, {"kyiv": 3, "lima": 2, "doha": 1}, 5, forget_after=None, max_size=4)
    assert grown.values == ["bern", "rome", "oslo", "kyiv"]
    assert _grow(START, {"kyiv": 3}, 5, max_size=2).values == START.values


def test_thirty_days_of_drift_keep_the_vocabulary_bounded() -> None:
    vocabulary = GrownVocabulary([], np.empty(0, np.int32), 0, 0)
    previous: dict[str, int] = {}
    for day in range(1, 31):
        counts = {f"item {each}": 1 for each in range(day * 10, day * 10 + 100)}
        vocabulary = _grow(vocabulary, counts, day, forget_after=3)
        ids = {value: place for place, value in enumerate(vocabulary.values)}
        assert counts.keys() <= ids.keys()
        assert all(ids[value] == previous[value] for value in counts.keys() & previous.keys())
        previous = ids
    assert len(vocabulary.values) <= 100 + 3 * 10
