"""A dataclass from JSON has values of its fields' types, or is refused with the field and the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from cloudrec_contract.safe_json import RecordError, record_of


@dataclass(frozen=True, kw_only=True)
class Row:
    day: str
    usd: float | None
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Book:
    at: float
    is_open: bool = False
    rows: tuple[Row, ...] = ()
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    either: str | int | None = None


def test_a_record_has_its_rows_its_mappings_and_its_defaults() -> None:
    found = record_of(
        Book,
        {"at": 1, "rows": [{"day": "x", "usd": None}, {"day": "y", "usd": 2}], "places": {"a": ["b", 3.0]}},
    )
    assert found == Book(at=1.0, rows=(Row(day="x", usd=None), Row(day="y", usd=2.0)), places={"a": ("b", 3)})
    assert isinstance(found.at, float)


@pytest.mark.parametrize("value", ["x", 3, None])
def test_a_union_accepts_each_of_its_types(value: object) -> None:
    assert record_of(Book, {"at": 1, "either": value}).either == value


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "Book is [], not an object"),
        ({}, "Book has no field at"),
        ({"at": 1, "new": 1}, "Book has the unknown field 'new'"),
        ({"at": "1"}, "Book.at is '1', not a number"),
        ({"at": True}, "Book.at is True, not a number"),
        ({"at": float("nan")}, "Book.at is nan, not a number"),
        ({"at": 10**30}, "Book.at is 1000000000000000000000000000000, not a number"),
        ({"at": 1, "is_open": 1}, "Book.is_open is 1, not true or false"),
        ({"at": 1, "rows": {}}, "Book.rows is {}, not a list"),
        ({"at": 1, "rows": [{"day": 3, "usd": 1}]}, "Book.rows[0].day is 3, not a text"),
        ({"at": 1, "rows": [{"day": "x", "usd": "y"}]}, "Book.rows[0].usd is 'y', not a number"),
        ({"at": 1, "rows": [{"day": "x", "usd": 1, "count": 1.5}]}, "Book.rows[0].count is 1.5, not a whole"),
        ({"at": 1, "rows": [{"day": "x", "usd": 1, "count": 10**20}]}, "not a whole number"),
        ({"at": 1, "places": {"a": ["b"]}}, "Book.places['a'] is ['b'], not a list of 2"),
        ({"at": 1, "places": []}, "Book.places is [], not an object"),
        ({"at": 1, "either": 1.5}, "Book.either is 1.5, not a whole number"),
        ({"at": 1, "either": "x", "places": {"a\x1b[2J": 1}}, "not a list"),
        ({"at": "\x1b[2J" * 50}, "..., not a number"),
    ],
)
def test_another_value_is_refused_by_field_and_type(document: object, said: str) -> None:
    with pytest.raises(RecordError) as refused:
        record_of(Book, document)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200
