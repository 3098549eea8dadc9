from __future__ import annotations

from collections import Counter as Tally

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.data import encode
from cloudrec.errors import DataError

_CODES = st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 50), st.sampled_from([0, 2**32 - 1, 2**31]))


@settings(max_examples=200, deadline=None)
@given(st.lists(_CODES, unique=True, max_size=300), st.lists(_CODES, max_size=300))
def test_a_lookup_finds_what_a_dictionary_finds(vocabulary: list[int], others: list[int]) -> None:
    known = {code: number + 2 for number, code in enumerate(vocabulary)}
    asked = vocabulary + others

    found = encode.Lookup(np.array(vocabulary, np.uint32)).ids(np.array(asked, np.uint32))

    assert found.tolist() == [known.get(code, 1) for code in asked]


def test_a_lookup_holds_a_million_codes() -> None:
    codes = np.random.default_rng(0).permutation(np.arange(1 << 20, dtype=np.uint32) * np.uint32(4093))

    assert np.array_equal(encode.Lookup(codes).ids(codes), np.arange(2, len(codes) + 2))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 20)), max_size=10), st.integers(1, 4))
def test_a_vocabulary_is_ranked_by_frequency_then_value(batches: list[list[int]], min_frequency: int) -> None:
    counter = encode.Counter("C1", most=100)
    for batch in batches:
        counter.add(np.array(batch, np.uint32))
    tally = Tally(code for batch in batches for code in batch)
    ranked = sorted((c for c, n in tally.items() if n >= min_frequency), key=lambda c: (-tally[c], c))

    assert counter.vocabulary(min_frequency=min_frequency).tolist() == ranked


def test_too_many_distinct_categories_are_refused_with_a_way_out() -> None:
    counter = encode.Counter("C7", most=1000)

    with pytest.raises(DataError, match="C7 has more than 1,000 distinct") as caught:
        counter.add(np.arange(1 << 17, dtype=np.uint32))

    assert "--encoding hash" in str(caught.value.remedy)


def test_hashed_ids_spread_evenly_and_differ_between_features() -> None:
    codes = np.arange(100_000, dtype=np.uint32)
    one, other = (encode.hashed(codes, feature, buckets=101) for feature in (0, 1))

    assert one.min() == 1
    assert one.max() == 100
    assert np.abs(np.bincount(one, minlength=101)[1:] - 1000).max() < 200
    assert 0.005 < (one == other).mean() < 0.02
