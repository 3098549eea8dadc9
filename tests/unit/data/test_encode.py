from __future__ import annotations

from collections import Counter as Tally

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.data.format.codes import Cache, Dictionary
from cloudrec.data.format.fields import Scratch, lower_case, to_hexadecimal
from cloudrec.data.prepare import encode
from cloudrec.errors import DataError

_CODES = st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 50), st.sampled_from([0, 2**32 - 1, 2**31]))


def words(codes: list[int], form: str = "08x") -> np.ndarray:
    return np.frombuffer("".join(format(c, form) for c in codes).encode(), np.uint64)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(_CODES, unique=True, max_size=300), max_size=8), st.lists(_CODES, max_size=300))
def test_a_dictionary_numbers_words_in_order_of_appearance(
    batches: list[list[int]], others: list[int]
) -> None:
    dictionary = Dictionary()
    expected: dict[int, int] = {}
    for batch in batches:
        new = [code for code in batch if code not in expected]
        expected |= {code: number for number, code in enumerate(new, len(expected) + 1)}
        dictionary.add(words(new))

    asked = [*expected, *others]
    assert dictionary.find(words(asked)).tolist() == [expected.get(code, 0) for code in asked]
    assert np.array_equal(dictionary.words, words(list(expected)))


def test_a_dictionary_grows_to_a_million_words() -> None:
    dictionary = Dictionary()
    all_words = np.random.default_rng(0).permutation(
        np.arange(1, 1 << 20, dtype=np.uint64) * np.uint64(0x10001)
    )
    for part in np.array_split(all_words, 50):
        dictionary.add(part)

    assert np.array_equal(dictionary.find(all_words), np.arange(1, len(all_words) + 1))
    assert not dictionary.find(all_words + np.uint64(1 << 60)).any()


def test_a_cache_returns_only_stored_entries() -> None:
    cache, scratch = Cache(), Scratch()
    told = np.arange(1, 40_001, dtype=np.uint64) << np.uint64(20)
    for part in np.array_split(told, 7):
        cache.add(3, part, (part >> np.uint64(20)).astype(np.int32))
    asked = np.zeros((26, len(told)), np.uint64)
    asked[3] = asked[4] = told

    numbers, unknown = cache.look_up(asked, scratch)

    features, places = np.divmod(unknown, len(told))
    assert np.count_nonzero(features == 4) == len(told)
    assert set(features.tolist()) == {3, 4}
    known = np.setdiff1d(np.arange(len(told)), places[features == 3])
    assert len(known) > 1000
    assert np.array_equal(numbers[3][known], known + 1)
    assert not numbers[:3].any()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 20)), max_size=10), st.integers(1, 4))
def test_a_vocabulary_is_ranked_by_frequency_then_value(batches: list[list[int]], min_frequency: int) -> None:
    counter = encode.Counter("C1", most=100)
    numbers: dict[tuple[int, str], int] = {}
    for batch in batches:
        for form in ("08x", "08X"):  # one code in two spellings
            found = counter.numbers(words(batch, form))
            assert found is not None
            counter.count(found[0])
            numbers |= {(code, form): number for code, number in zip(batch, found[0].tolist(), strict=True)}
    counter.numbers(words([10_000]))  # not counted, since only held-out rows have it
    tally = Tally(code for batch in batches * 2 for code in batch)
    ranked = sorted((c for c, n in tally.items() if n >= min_frequency), key=lambda c: (-tally[c], c))

    ids, kept = counter.ids(min_frequency=min_frequency)

    assert kept.tolist() == ranked
    expected = {code: number for number, code in enumerate(ranked, 2)}
    assert {key: ids[n] for key, n in numbers.items()} == {key: expected.get(key[0], 1) for key in numbers}
    assert ids[0] == 0
    assert 10_000 in tally or ids[-1] == 1


@given(st.lists(_CODES))
def test_a_code_round_trips_and_is_case_insensitive(codes: list[int]) -> None:
    numbers = np.array(codes, np.uint32)
    assert np.array_equal(to_hexadecimal(numbers), words(codes))
    assert np.array_equal(lower_case(words(codes, "08X")), words(codes))


def test_words_that_are_not_codes_get_no_number() -> None:
    counter = encode.Counter("C1", most=100)

    assert counter.numbers(np.frombuffer(b"0000000a0000000g", np.uint64)) is None
    assert encode.HashEncoder(buckets=9).numbers(0, np.frombuffer(b"0000000g", np.uint64)) is None


def test_too_many_distinct_categories_are_refused_with_a_remedy() -> None:
    counter = encode.Counter("C7", most=1000)
    many = counter.numbers(words(list(range(1 << 14))))
    assert many is not None
    counter.count(many[0][:1000])  # values that only held-out rows have do not count

    with pytest.raises(DataError, match="C7 has more than 1,000 distinct") as caught:
        counter.count(many[0])

    assert "--encoding hash" in str(caught.value.remedy)


def test_hashed_ids_spread_evenly_and_differ_between_features() -> None:
    codes = np.arange(100_000, dtype=np.uint32)
    one, other = (encode.hashed(codes, feature, buckets=101) for feature in (0, 1))

    assert one.min() == 1
    assert one.max() == 100
    assert np.abs(np.bincount(one, minlength=101)[1:] - 1000).max() < 200
    assert 0.005 < (one == other).mean() < 0.02
