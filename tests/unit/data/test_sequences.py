"""Sequence features in `data prepare`: the newest values in their order, with the places of missing ones."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.check import check
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import SchemaError, parse

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 3
SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "sparse": [
        {"name": "item", "table": "items", "min_frequency": 1},
        {"name": "seen", "kind": "sequence", "max_length": LENGTH, "table": "items", "min_frequency": 1},
        {"name": "hours", "kind": "sequence", "max_length": LENGTH, "boundaries": [6, 12]},
    ],
    "item": ["item"],
}
SEEN: list[list[str | None] | None] = [["a", "b", "c", "d", "e"], ["b"], [], None, ["e", None, "a", None]]
KEPT = [["c", "d", "e"], ["b"], [], [], [None, "a", None]]
HOURS = [[1, 2, 3, 7, 13], [None], [], None, [1, 7, None, 13]]
HOUR_IDS = [[1, 2, 3], [0], [], [], [2, 0, 3]]


def _schema(**changed: Any) -> dict[str, Any]:
    """The schema with keys of `seen` changed."""
    sparse = [{**each, **changed} if each["name"] == "seen" else each for each in SCHEMA["sparse"]]
    return {**SCHEMA, "sparse": sparse}


def _values(out: Path, feature: int) -> list[list[int]]:
    """The ids of a feature with lists, row by row."""
    offsets = np.load(out / "train" / "shard-00000.offsets.npy")[feature]
    values = np.load(out / "train" / "shard-00000.values.npy")
    return [values[low:high].tolist() for low, high in pairwise(offsets)]


def _names(out: Path) -> dict[int, str]:
    lines = (out / "vocabulary" / "items.jsonl").read_text().splitlines()
    return {number: json.loads(line) for number, line in enumerate(lines, 2)}


def _prepare(folder: Path, schema: dict[str, Any], name: str = "rows.parquet") -> Path:
    out = folder / f"out-{name}"
    prepare(str(folder / name), out, options=PrepareOptions(test_fraction=0.0), schema=parse(schema))
    check(out)
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "clicked": [True, False, True, False, True],
            "item": ["a", "b", "c", "d", "e"],
            "seen": pa.array(SEEN, pa.list_(pa.string())),
            "hours": pa.array(HOURS, pa.list_(pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path


def test_the_newest_values_are_kept_in_order_with_missing_ones(folder: Path) -> None:
    out = _prepare(folder, SCHEMA)
    names = {0: None, **_names(out)}
    assert [[names[each] for each in row] for row in _values(out, 0)] == KEPT
    assert _values(out, 1) == HOUR_IDS


@pytest.mark.parametrize(("least", "known"), [(2, {"a", "b", "c", "d", "e"}), (3, {"a", "e"})])
def test_the_vocabulary_counts_the_kept_values_alone(folder: Path, least: int, known: set[str]) -> None:
    # As items, each is in one row. Kept events are c, d, e, b, a: the first a and b are cut off.
    sparse = [{**each, "min_frequency": least} for each in SCHEMA["sparse"][:2]]
    table = pq.read_table(folder / "rows.parquet")
    pq.write_table(pa.concat_tables([table, table.slice(4)]), folder / "rows.parquet")  # a and e once more
    assert set(_names(_prepare(folder, {**SCHEMA, "sparse": sparse})).values()) == known


def test_text_columns_give_the_ids_of_lists(folder: Path) -> None:
    lists = {**SCHEMA, "sparse": SCHEMA["sparse"][:2]}
    texts = {**SCHEMA, "sparse": _schema(separator="|")["sparse"][:2]}
    lines = [
        f"{clicked},{item},{'|'.join(each or '' for each in seen or [])}"
        for clicked, item, seen in zip("10101", "abcde", SEEN, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(["clicked,item,seen", *lines]) + "\n")
    assert _values(_prepare(folder, texts, "rows.csv"), 0) == _values(_prepare(folder, lists), 0)


def test_the_schema_comes_back_as_it_was() -> None:
    schema = parse(SCHEMA)
    assert parse(schema.to_json()) == schema
    assert [each.max_length for each in schema.sequences] == [LENGTH, LENGTH]
    assert parse({"label": "y", "sparse": [{"name": "s", "kind": "sequence"}]}).sparse[0].max_length == 50
    plain = parse({"label": "y", "sparse": ["city"]}).to_json()
    assert "item" not in plain
    assert "max_length" not in plain["sparse"][0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (_schema(max_length=0), "max_length of seen is 0; it must be a whole number from 1 to 1,024"),
        (_schema(kind="multi_hot"), "seen has a max_length but is multi_hot"),
        (_schema(pooling="mean"), "seen is a sequence and has pooling mean"),
        ({**SCHEMA, "item": ["itm"]}, "item names itm, which is no sparse feature; did you mean item"),
        ({**SCHEMA, "item": ["item", "seen"]}, "item names seen, a sequence"),
        ({**SCHEMA, "item": ["item", "item"]}, "item names a feature twice"),
        ({**SCHEMA, "item": "item"}, "item is 'item'; it must be a list"),
        (
            {"label": "y", "sparse": [{"name": "tags", "kind": "multi_hot"}], "item": ["tags"]},
            "item begins with tags, a list",
        ),
    ],
)
def test_a_schema_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(changed)
