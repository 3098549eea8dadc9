"""Vocabularies that grow: ids stay, new values follow, and values that are gone make room."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cloudrec.data.check import check
from cloudrec.data.growth import GrownVocabulary, grow
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError, UsageError
from cloudrec_contract.features import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = GrownVocabulary(["bern", "rome", "oslo"], np.array([1, 1, 1], np.int32), 3, 0)
SCHEMA = {
    "label": "clicked",
    "dense": [{"name": "price", "transform": "normalise"}],
    "sparse": [{"name": "city", "min_frequency": 2}, {"name": "zip", "encoding": "hash", "buckets": 9}],
}


def _grow(
    before: GrownVocabulary,
    found: Sequence[str],
    generation: int,
    forget_after: int | None = None,
    max_size: int | None = None,
) -> GrownVocabulary:
    return grow(
        before.values,
        before.last_seen,
        found,
        found,
        max_size=max_size,
        generation=generation,
        forget_after=forget_after,
    )


def test_ids_stay_and_new_values_follow_in_their_order() -> None:
    grown = _grow(START, ["kyiv", "rome", "lima"], 2)
    assert grown.values == ["bern", "rome", "oslo", "kyiv", "lima"]
    assert grown.last_seen.tolist() == [1, 2, 1, 2, 2]
    assert (grown.kept, grown.replaced) == (3, 0)


def test_a_value_that_was_not_seen_gives_its_id_to_a_new_one() -> None:
    before = GrownVocabulary(["bern", "rome", "oslo"], np.array([3, 1, 2], np.int32), 3, 0)
    grown = _grow(before, ["lima", "kyiv", "doha", "bern"], 4, forget_after=2)
    assert grown.values == ["bern", "lima", "kyiv", "doha"]  # rome was seen longest ago
    assert grown.last_seen.tolist() == [4, 4, 4, 4]
    assert (grown.kept, grown.replaced) == (1, 2)


def test_a_value_keeps_its_id_while_no_other_needs_it() -> None:
    assert _grow(START, ["bern"], 9, forget_after=1).values == START.values


def test_a_value_of_this_preparation_never_gives_way() -> None:
    grown = _grow(START, ["bern", "rome", "oslo", "lima"], 9, forget_after=1)
    assert grown.values == ["bern", "rome", "oslo", "lima"]


def test_the_vocabulary_is_no_larger_than_allowed() -> None:
    grown = _grow(START, ["kyiv", "lima", "doha"], 5, max_size=4)
    assert grown.values == ["bern", "rome", "oslo", "kyiv"]
    assert _grow(START, ["kyiv"], 5, max_size=2).values == START.values


def test_thirty_days_of_drift_keep_the_vocabulary_bounded() -> None:
    vocabulary = GrownVocabulary([], np.empty(0, np.int32), 0, 0)
    previous: dict[str, int] = {}
    for day in range(1, 31):
        found = [f"item {each}" for each in range(day * 10, day * 10 + 100)]
        vocabulary = _grow(vocabulary, found, day, forget_after=3)
        ids = {value: place for place, value in enumerate(vocabulary.values)}
        assert set(found) <= ids.keys()
        assert all(ids[value] == previous[value] for value in set(found) & previous.keys())
        previous = ids
    assert len(vocabulary.values) <= 100 + 3 * 10


def _day(folder: Path, cities: Sequence[str], **options: Any) -> Path:
    """Prepare a day with three rows of each city, and one of a rare one."""
    every = [*cities] * 3 + ["rare"]
    table = pa.table(
        {
            "clicked": [place % 2 for place in range(len(every))],
            "price": np.arange(len(every), dtype=np.float64),
            "city": every,
            "zip": [f"{place}" for place in range(len(every))],
        }
    )
    folder.mkdir()
    parquet.write_table(table, folder / "rows.parquet")
    given = PrepareOptions(test_fraction=0, **options)
    schema = None if given.like else parse(SCHEMA)
    prepare(str(folder / "rows.parquet"), folder / "data", options=given, schema=schema)
    check(folder / "data", deep=True)
    return folder / "data"


def _cities(data: Path) -> list[str]:
    return [json.loads(line) for line in (data / "vocabulary" / "city.jsonl").read_text().splitlines()]


def _ids(data: Path, row: int) -> list[int]:
    found = np.load(data / "train" / "shard-00000.sparse.npy")[row]
    return [int(each) for each in found]


def test_a_dataset_grows_from_the_one_before(tmp_path: Path) -> None:
    first = _day(tmp_path / "1", ["bern", "rome"])
    second = _day(tmp_path / "2", ["oslo", "rome"], like=str(first), grow=True)
    assert _cities(first) == ["bern", "rome"]
    assert _cities(second) == ["bern", "rome", "oslo"]
    assert _ids(second, 0) == [4, 3] * 3 + [1]  # the rare one is unknown
    assert _ids(second, 1) == _ids(first, 1)  # hashes
    statistics = [
        json.loads((data / "dataset.json").read_text())["encoding"]["mapping"]["statistics"]
        for data in (first, second)
    ]
    assert statistics[0] == statistics[1]  # numbers mean the same
    plain = _day(tmp_path / "3", ["lima", "rome"], like=str(second))
    assert _cities(plain) == _cities(second)


def test_values_that_no_day_has_make_room_on_disk(tmp_path: Path) -> None:
    data = _day(tmp_path / "0", ["bern", "rome", "oslo"])
    for day in range(1, 4):
        grown = {"like": str(data), "grow": True, "forget_after": 2}
        data = _day(tmp_path / str(day), ["rome", f"new {day}"], **grown)
    assert _cities(data) == ["new 2", "new 3", "rome", "new 1"]
    growth = json.loads((data / "dataset.json").read_text())["encoding"]["growth"]
    assert growth["generation"] == 3


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    first = _day(tmp_path / "0", ["bern", "rome"])
    second = _day(tmp_path / "1", ["bern", "oslo"], like=str(first), grow=True)
    seen = second / "vocabulary" / "city.seen.npy"
    data = bytearray(seen.read_bytes())
    data[-1] ^= 1
    seen.write_bytes(data)
    with pytest.raises(DataError, match=r"city\.seen\.npy is damaged: its crc32 is"):
        check(second, deep=True)
    with pytest.raises(DataError, match=r"city\.seen\.npy is damaged: its crc32 is"):
        _day(tmp_path / "2", ["bern"], like=str(second), grow=True)


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--like names none"):
        PrepareOptions(grow=True)
    with pytest.raises(UsageError, match="--forget-after is for a vocabulary that grows"):
        PrepareOptions(like="x", forget_after=3)
    with pytest.raises(UsageError, match="forget_after is 0; it must be between 1 and"):
        PrepareOptions(like="x", grow=True, forget_after=0)
    data = _day(tmp_path / "0", ["bern"])
    with pytest.raises(UsageError, match="--grow works on one machine"):
        prepare(
            str(tmp_path / "0" / "rows.parquet"),
            tmp_path / "1",
            options=PrepareOptions(like=str(data), grow=True),
            on="ray://127.0.0.1:1",
        )


def _criteo_day(folder: Path, counts: dict[str, int], **options: Any) -> Path:
    """Prepare Criteo rows whose first category occurs as often as `counts` says, in that order."""
    folder.mkdir()
    integers = "\t".join("1" for _ in range(13))
    others = "\t".join(["0000000a", *[""] * 24])
    lines = [
        f"{number % 2}\t{integers}\t{code}\t{others}"
        for code, count in counts.items()
        for number in range(count)
    ]
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n")
    prepare(
        str(folder / "rows.tsv"),
        folder / "data",
        options=PrepareOptions(test_fraction=0, **{"threads": 2, **options}),
    )
    check(folder / "data", deep=True)
    return folder / "data"


def _codes(data: Path) -> list[int]:
    found: list[int] = np.load(data / "vocabulary" / "C1.npy").tolist()
    return found


def test_the_vocabulary_of_criteos_rows_grows_by_codes(tmp_path: Path) -> None:
    first = _criteo_day(tmp_path / "1", {"000000ff": 4, "00000001": 3, "00000002": 1}, min_frequency=2)
    second = _criteo_day(
        tmp_path / "2",
        {"000000b0": 2, "00000001": 1, "000000C0": 5, "00000007": 1},
        like=str(first),
        grow=True,
    )
    assert _codes(first) == [0xFF, 1]
    assert _codes(second) == [0xFF, 1, 0xC0, 0xB0]
    assert _ids(second, 0) == [5, 5, 3, 4, 4, 4, 4, 4, 1]  # of the first category
    assert np.load(second / "vocabulary" / "C1.seen.npy").tolist() == [0, 1, 1, 1]
    assert json.loads((second / "dataset.json").read_text())["encoding"]["min_frequency"] == 2


def test_codes_that_are_gone_make_room(tmp_path: Path) -> None:
    first = _criteo_day(tmp_path / "1", {"000000ff": 4, "00000001": 3}, min_frequency=1)
    second = _criteo_day(tmp_path / "2", {"00000001": 3}, like=str(first), grow=True)
    third = _criteo_day(
        tmp_path / "3",
        {"000000ee": 3, "00000001": 1, "000000dd": 2},
        like=str(second),
        grow=True,
        forget_after=2,
    )
    assert _codes(third) == [0xEE, 1, 0xDD]
    again = _criteo_day(tmp_path / "4", {"000000ff": 1}, like=str(third), grow=True, forget_after=2)
    assert _codes(again) == [0xEE, 1, 0xDD, 0xFF]


def test_the_order_of_criteos_rows_changes_no_id_of_a_grown_vocabulary(tmp_path: Path) -> None:
    first = _criteo_day(tmp_path / "1", {"000000ff": 4}, min_frequency=1)
    counts = {f"{number:08x}": 1 + number % 5 for number in range(1, 300)}
    one = _criteo_day(tmp_path / "2", counts, like=str(first), grow=True, chunk_bytes=512)
    other = _criteo_day(
        tmp_path / "3", dict(reversed(counts.items())), like=str(first), grow=True, chunk_bytes=700, threads=1
    )
    assert _codes(one) == _codes(other)
    assert len(_codes(one)) == 299


def test_hashes_of_criteos_rows_have_no_vocabulary_to_grow(tmp_path: Path) -> None:
    first = _criteo_day(tmp_path / "1", {"000000ff": 4}, encoding="hash", hash_buckets=50)
    with pytest.raises(UsageError, match="hashes its categories"):
        _criteo_day(tmp_path / "2", {"000000ff": 4}, like=str(first), grow=True)
