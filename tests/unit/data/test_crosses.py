"""Crosses of columns and lookups of values in `data prepare`."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.cli.main import run as cloudrec
from cloudrec.data.check import check
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.schema_file import default_schema, load_schema
from cloudrec.errors import DataError
from cloudrec.spec.models import Spec
from cloudrec_contract.features import SchemaError, parse

WHOLE = PrepareOptions(test_fraction=0.0)
REGIONS = {"Berlin": "DE", "Köln": "DE", "Paris": "FR", "7": "seven"}
SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "dense": [{"name": "wealth", "column": "city", "lookup": {"Berlin": 3, "Paris": 4.5}, "missing": -1}],
    "sparse": [
        {"name": "city_device", "cross": ["city", "device"], "buckets": 100_000},
        {"name": "region", "column": "city", "lookup": REGIONS, "min_frequency": 1},
        {"name": "visited", "kind": "multi_hot", "lookup": REGIONS, "min_frequency": 1},
        {"name": "path", "column": "visited", "kind": "sequence", "lookup": REGIONS, "min_frequency": 1},
        {"name": "size", "column": "city", "lookup": {"Berlin": 4, "Köln": 1}, "boundaries": [2, 3]},
    ],
}
CITIES = [None, "Berlin", "Köln", "Paris", "Oslo"]


def _rows(count: int = 300) -> dict[str, list[Any]]:
    source = random.Random(0)  # noqa: S311 - rows, not secrets
    return {
        "clicked": [source.randrange(2) for _ in range(count)],
        "city": [source.choice(CITIES) for _ in range(count)],
        "device": [source.choice([None, 1, 2]) for _ in range(count)],
        "visited": [[source.choice(CITIES) for _ in range(source.randrange(4))] for _ in range(count)],
    }


def _prepared(folder: Path, rows: Mapping[str, Sequence[Any]], schema: Any, name: str = "out") -> Path:
    pq.write_table(pa.table(dict(rows)), folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / name, options=WHOLE, schema=schema)
    check(folder / name, deep=True)
    return folder / name


def _names(out: Path, table: str) -> list[str | None]:
    lines = (out / "vocabulary" / f"{table}.jsonl").read_text().splitlines()
    return [None, "?", *map(json.loads, lines)]


def test_a_cross_has_an_id_for_each_combination(tmp_path: Path) -> None:
    rows = _rows()
    out = _prepared(tmp_path, rows, parse(SCHEMA))
    ids = np.load(out / "train" / "shard-00000.sparse.npy")[0].tolist()
    pairs = list(zip(rows["city"], rows["device"], strict=True))
    assert [each == 0 for each in ids] == [None in pair for pair in pairs]
    assert len(set(ids) - {0}) == len({pair for pair in pairs if None not in pair}) == 8
    by_pair = dict(zip(pairs, ids, strict=True))
    assert [by_pair[pair] for pair in pairs] == ids


def test_crosses_that_join_to_one_text_are_different(tmp_path: Path) -> None:
    texts = [("a", "bc"), ("ab", "c"), ("", "abc"), ("1:a", "b"), ("1", "a:b"), ("a:b", "1"), ("1:1", "")]
    rows: dict[str, list[Any]] = {
        "y": [1] * len(texts),
        "a": [a for a, _ in texts],
        "b": [b for _, b in texts],
    }
    out = _prepared(tmp_path, rows, parse({"label": "y", "sparse": [{"name": "ab", "cross": ["a", "b"]}]}))
    assert len(set(np.load(out / "train" / "shard-00000.sparse.npy")[0].tolist())) == len(texts)


def test_a_lookup_comes_before_the_encoding(tmp_path: Path) -> None:
    rows = _rows()
    out = _prepared(tmp_path, rows, parse(SCHEMA))
    sparse = np.load(out / "train" / "shard-00000.sparse.npy")
    regions = _names(out, "region")
    assert [regions[each] for each in sparse[1]] == [REGIONS.get(each or "") for each in rows["city"]]
    sizes = {"Berlin": 3, "Köln": 1}  # the buckets of 4 and of 1
    assert sparse[2].tolist() == [sizes.get(each or "", 0) for each in rows["city"]]
    dense = np.load(out / "train" / "shard-00000.dense.npy")[:, 0]
    assert dense.tolist() == [{"Berlin": 3.0, "Paris": 4.5}.get(each or "", -1.0) for each in rows["city"]]
    offsets, values = (np.load(out / "train" / f"shard-00000.{kind}.npy") for kind in ("offsets", "values"))
    for place, table in enumerate(("visited", "path")):
        names = _names(out, table)
        found = [[names[each] for each in values[a:b]] for a, b in pairwise(offsets[place])]
        looked_up = [[REGIONS.get(each or "") for each in row] for row in rows["visited"]]
        if table == "visited":  # a sequence keeps the places of missing values
            looked_up = [[each for each in row if each is not None] for row in looked_up]
        assert found == looked_up


def test_whole_numbers_are_looked_up_by_their_digits(tmp_path: Path) -> None:
    schema = parse({"label": "y", "sparse": [{"name": "n", "lookup": REGIONS, "encoding": "hash"}]})
    ids = []
    every: list[list[Any]] = [[7, 8], [7.0, None], ["7", "07"]]
    for number, values in enumerate(every):
        out = _prepared(tmp_path, {"y": [0, 1], "n": values}, schema, f"out-{number}")
        ids.append(np.load(out / "train" / "shard-00000.sparse.npy")[0].tolist())
    assert ids[0] == ids[1] == ids[2]
    assert ids[0][0] != ids[0][1] == 0


def test_csv_and_json_lines_give_the_bytes_of_parquet(tmp_path: Path) -> None:
    rows = _rows()
    texts = json.loads(json.dumps(SCHEMA))
    for entry in texts["sparse"][2:4]:
        entry["separator"] = "|"
    names = list(rows)
    table, lines = [",".join(names)], []
    for row in zip(*rows.values(), strict=True):
        lines.append(json.dumps(dict(zip(names, row, strict=True))))
        cells = ["|".join(each or "" for each in cell) if isinstance(cell, list) else cell for cell in row]
        table.append(",".join("" if cell is None else str(cell) for cell in cells))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "rows.csv").write_text("\n".join(table) + "\n")
    texts["sparse"].pop(3)  # an empty text has no place of a missing value
    plain = {**SCHEMA, "sparse": [each for each in SCHEMA["sparse"] if each["name"] != "path"]}
    digest = json.loads((_prepared(tmp_path, rows, parse(plain)) / "dataset.json").read_text())["digest"]
    for name, schema in (("rows.jsonl", plain), ("rows.csv", texts)):
        prepare(str(tmp_path / name), tmp_path / f"of-{name}", options=WHOLE, schema=parse(schema))
        assert json.loads((tmp_path / f"of-{name}" / "dataset.json").read_text())["digest"] == digest


def test_a_dataset_contains_its_maps_and_refuses_others(tmp_path: Path) -> None:
    rows = _rows()
    first = _prepared(tmp_path, rows, parse(SCHEMA), "first")
    like = PrepareOptions(like=str(first), test_fraction=0.0)
    prepare(str(tmp_path / "rows.parquet"), tmp_path / "again", options=like)
    assert (tmp_path / "again" / "train" / "shard-00000.sparse.npy").read_bytes() == (
        first / "train" / "shard-00000.sparse.npy"
    ).read_bytes()
    other = json.loads(json.dumps(SCHEMA))
    other["sparse"][1]["lookup"]["Paris"] = "DE"
    with pytest.raises(DataError, match="differs from that of --like in region"):
        prepare(str(tmp_path / "rows.parquet"), tmp_path / "other", options=like, schema=parse(other))
    text = (first / "dataset.json").read_text()
    (first / "dataset.json").write_text(text.replace('"Paris": "FR"', '"Paris": "DE"'))
    with pytest.raises(DataError, match="its feature schema was changed"):
        prepare(str(tmp_path / "rows.parquet"), tmp_path / "changed", options=like)


def test_missing_error_names_values_that_a_map_or_a_cross_lacks(tmp_path: Path) -> None:
    for entry, line in (
        ({"name": "r", "column": "city", "lookup": REGIONS, "missing": "error"}, 2),
        ({"name": "c", "cross": ["city", "device"], "missing": "error"}, 3),
    ):
        pq.write_table(
            pa.table({"y": [1, 0, 1], "city": ["Paris", "Oslo", "Paris"], "device": [1, 1, None]}),
            tmp_path / "rows.parquet",
        )
        schema = parse({"label": "y", "sparse": [entry]})
        with pytest.raises(DataError, match=rf"rows\.parquet:{line}: {entry['name']} is missing"):
            prepare(str(tmp_path / "rows.parquet"), tmp_path / "out", options=WHOLE, schema=schema)


def test_files_of_maps_are_read_beside_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maps").mkdir()
    pairs = [*REGIONS.items()]
    (tmp_path / "maps" / "regions.csv").write_text(
        "city,region\n" + "".join(f'"{key}",{value}\n' for key, value in pairs)
    )
    (tmp_path / "maps" / "regions.tsv").write_text(
        "city\tregion\n\n" + "".join(f"{key}\t{value}\n" for key, value in pairs)
    )
    (tmp_path / "maps" / "regions.json").write_text(json.dumps(REGIONS))
    (tmp_path / "maps" / "wealth.csv").write_text("city,wealth\nBerlin,3\nParis,4.5\n")
    found = set()
    for suffix in ("csv", "tsv", "json"):
        written = json.loads(json.dumps(SCHEMA))
        written["dense"][0]["lookup"] = "wealth.csv"
        written["sparse"][1]["lookup"] = f"regions.{suffix}"
        (tmp_path / "maps" / "features.yaml").write_text(json.dumps(written))
        assert load_schema(tmp_path / "maps" / "features.yaml") == parse(SCHEMA)
        found.add(json.dumps(load_schema(tmp_path / "maps" / "features.yaml").mapping()))
    assert len(found) == 1
    (tmp_path / "maps" / "cloudrec.yaml").write_text(json.dumps({"version": 1, "features": written}))
    monkeypatch.chdir(tmp_path / "maps")
    assert default_schema() == parse(SCHEMA)
    assert Spec(features=written).features == written


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.csv", None, "cannot read the lookup .*none.csv: No such file"),
        ("map.parquet", "x", "is of no known format; it must be .csv, .tsv or .json"),
        ("map.csv", "a,b\nx,1,2\n", "line 2 has 3 columns, not 2"),
        ("map.csv", "a,b\nx,1\nx,2\n", "line 3 gives 'x' another value than a line before"),
        ("map.csv", "a,b\n", "lookup of region is empty"),
        ("map.csv", "a,b\nx,\n", "the value of 'x' in lookup of region is ''; it must be a text or a whole"),
        ("map.csv", "a,b\n,x\n", "has a value for an empty text, which is a missing value"),
        ("map.csv", b"a,b\n\xff,x\n", "map.csv cannot be read"),
        ("map.json", "[1]", "holds a list; it must be an object"),
        ("map.json", "{", "map.json cannot be read"),
        (
            "map.json",
            '{"a": 1.5}',
            "the value of 'a' in lookup of region is 1.5; it must be a text or a whole",
        ),
        (
            "map.json",
            json.dumps({str(n): n for n in range(50_001)}),
            "50,000 values and 1,048,576 characters",
        ),
        ("map.json", " " * (4 << 20) + "{}", "4,194,306 bytes; 4,194,304 is the most"),
    ],
)
def test_a_map_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | bytes | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    schema = {"label": "y", "sparse": [{"name": "region", "column": "city", "lookup": name}]}
    (tmp_path / "features.yaml").write_text(json.dumps(schema))
    pq.write_table(pa.table({"y": [1], "city": ["a"]}), tmp_path / "rows.parquet")
    words = ["data", "prepare", str(tmp_path / "rows.parquet"), str(tmp_path / "out"), "--features"]
    assert cloudrec([*words, str(tmp_path / "features.yaml")]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    with pytest.raises(DataError, match=message):
        load_schema(tmp_path / "features.yaml")
    assert "remedy:" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "c", "cross": ["a"]}, r"cross of c is \['a'\]; it must name 2 to 8 different columns"),
        ({"name": "c", "cross": ["a", "a"]}, "it must name 2 to 8 different columns"),
        ({"name": "c", "cross": "a"}, "cross is 'a'; it must be a list"),
        ({"name": "c", "cross": ["a", "y"]}, "c reads the label's column y"),
        ({"name": "c", "cross": ["a", "b"], "column": "a"}, "c has a column and a cross"),
        ({"name": "c", "cross": ["a", "b"], "kind": "multi_hot"}, "c has a cross and kind 'multi_hot'"),
        ({"name": "c", "cross": ["a", "b"], "encoding": "vocabulary"}, "and encoding 'vocabulary'"),
        ({"name": "c", "cross": ["a", "b"], "lookup": {"a": 1}}, "c has a cross and lookup"),
        ({"name": "c", "lookup": "regions.csv"}, "lookup of c is 'regions.csv'; a dataset contains the map"),
        ({"name": "c", "lookup": {"a": "x"}, "boundaries": [1]}, "must be a finite number"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "y", "sparse": [entry]})


def test_the_schema_comes_back_and_others_stay_as_they_were() -> None:
    assert parse(parse(SCHEMA).to_json()) == parse(SCHEMA)
    plain = parse({"label": "y", "dense": ["x"], "sparse": ["city"]})
    for each in (*plain.to_json()["dense"], *plain.to_json()["sparse"], *plain.mapping()):
        assert not {"cross", "lookup"} & set(each)
