"""`data prepare --features`: tables of any columns become the numbers and ids that the schema says."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from cloudrec.cli.main import run as cloudrec
from cloudrec.data.check import check
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.vocabulary import texts_in, to_lines
from cloudrec.errors import DataError, UsageError
from cloudrec_contract.features import CRITEO, SchemaError, parse

SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "dense": [
        {"name": "price", "transform": "log1p"},
        {"name": "age", "transform": "normalise", "missing": 40},
    ],
    "sparse": [
        {"name": "city", "min_frequency": 2},
        {"name": "tags", "kind": "multi_hot", "min_frequency": 1},
        {"name": "user", "table": "people", "min_frequency": 1},
        {"name": "friends", "kind": "multi_hot", "table": "people", "min_frequency": 1},
        {"name": "hour", "boundaries": [6, 12, 18]},
        {"name": "zip", "encoding": "hash", "buckets": 50},
    ],
}
ROWS = 3_000


def made(*, seed: int = 0, rows: int = ROWS) -> dict[str, list[Any]]:
    source = random.Random(seed)  # noqa: S311 - rows, not secrets
    some = source.choice
    return {
        "clicked": [source.random() < 0.3 for _ in range(rows)],
        "price": [some([None, -1.0, source.expovariate(0.1)]) for _ in range(rows)],
        "age": [some([None, source.gauss(35, 9)]) for _ in range(rows)],
        "city": [
            some([None, "Köln", "New York, NY", f"c{int(source.expovariate(0.05))}"]) for _ in range(rows)
        ],
        "tags": [some([None, [], [some("abcdef") for _ in range(source.randrange(4))]]) for _ in range(rows)],
        "user": [source.randrange(300) for _ in range(rows)],
        "friends": [[source.randrange(300) for _ in range(source.randrange(3))] for _ in range(rows)],
        "hour": [some([None, source.randrange(24)]) for _ in range(rows)],
        "zip": [f"{source.randrange(200):05d}" for _ in range(rows)],
    }


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


def arrays(dataset: Path, split: str) -> dict[str, np.ndarray]:
    kinds = ("labels", "dense", "sparse", "offsets", "values")
    return {kind: np.load(dataset / split / f"shard-00000.{kind}.npy") for kind in kinds}


def document(dataset: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dataset / "dataset.json").read_text())
    return found


def vocabulary(dataset: Path, table: str) -> list[str]:
    return [json.loads(line) for line in (dataset / "vocabulary" / f"{table}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parquet(tmp_path_factory.mktemp("source") / "rows.parquet", made())


@pytest.fixture(scope="module")
def dataset(source: Path) -> Path:
    out = source.parent / "dataset"
    prepare(str(source), out, options=PrepareOptions(test_fraction=0.0), schema=parse(SCHEMA))
    return out


def test_numbers_and_ids_are_those_that_plain_python_computes(dataset: Path) -> None:
    rows, found = made(), arrays(dataset, "train")
    assert found["labels"].tolist() == [int(each) for each in rows["clicked"]]
    prices = [math.log1p(max(each or 0.0, 0.0)) for each in rows["price"]]
    np.testing.assert_allclose(found["dense"][:, 0], prices, rtol=1e-6)
    ages = np.array([40.0 if each is None else each for each in rows["age"]])
    np.testing.assert_allclose(found["dense"][:, 1], (ages - ages.mean()) / ages.std(), rtol=1e-4, atol=1e-6)

    def ids(values: Sequence[str | None], known: list[str]) -> list[int]:
        numbers = {value: number for number, value in enumerate(known, 2)}
        return [0 if value is None else numbers.get(value, 1) for value in values]

    def counted(values: Sequence[str | None], least: int) -> list[str]:
        present = [value for value in values if value is not None]
        kept = {value for value in present if present.count(value) >= least}
        return sorted(kept, key=lambda value: (-present.count(value), value.encode()))

    cities = counted(rows["city"], 2)
    assert vocabulary(dataset, "city") == cities
    assert found["sparse"][0].tolist() == ids(rows["city"], cities)
    assert 1 in found["sparse"][0], "some value must be rare"
    people = [str(each) for each in rows["user"]]
    friends = [[str(each) for each in row] for row in rows["friends"]]
    known = counted(people + [each for row in friends for each in row], 1)
    assert vocabulary(dataset, "people") == known
    assert found["sparse"][1].tolist() == ids(people, known)
    hours = [0 if each is None else 1 + sum(each >= bound for bound in (6, 12, 18)) for each in rows["hour"]]
    assert found["sparse"][2].tolist() == hours
    tags = vocabulary(dataset, "tags")
    for number, lists, names in ((0, rows["tags"], tags), (1, friends, known)):
        offsets = found["offsets"][number]
        bags = [found["values"][a:b].tolist() for a, b in pairwise(offsets)]
        assert bags == [ids(list(row or []), names) for row in lists]


def test_a_hash_is_the_same_everywhere_and_within_its_buckets(dataset: Path) -> None:
    ids = arrays(dataset, "train")["sparse"][3]
    by_value = dict(zip(made()["zip"], ids.tolist(), strict=True))
    assert [by_value[each] for each in made()["zip"]] == ids.tolist()
    assert ids.min() >= 1
    assert ids.max() < 50
    assert len(set(by_value.values())) > 40


def test_csv_and_json_lines_give_the_bytes_of_parquet(tmp_path: Path, dataset: Path) -> None:
    rows = made()
    separated = json.loads(json.dumps(SCHEMA))
    for entry in separated["sparse"]:
        if entry.get("kind") == "multi_hot":
            entry["separator"] = "|"
    with gzip.open(tmp_path / "rows.csv.gz", "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        for row in zip(*rows.values(), strict=True):
            writer.writerow("|".join(map(str, each)) if isinstance(each, list) else each for each in row)
    lines = (dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, schema in (("rows.csv.gz", separated), ("rows.jsonl", SCHEMA)):
        out = tmp_path / f"of-{name}"
        prepare(str(tmp_path / name), out, options=PrepareOptions(test_fraction=0.0), schema=parse(schema))
        assert document(out)["digest"] == document(dataset)["digest"]
        assert document(out)["encoding"]["digest"] == document(dataset)["encoding"]["digest"]


def test_texts_that_look_like_times_are_the_same_values_in_json_lines(tmp_path: Path) -> None:
    days = [["2026-05-01", "2026-05-01T10:00:00Z", "2026-05-01 10:00:00"][row % 3] for row in range(30)]
    rows: dict[str, list[Any]] = {"clicked": [row % 2 for row in range(30)], "price": [0.5] * 30, "day": days}
    rows["days"] = [[day, "2026-05-02"] for day in days]
    sparse = [{"name": "day"}, {"name": "days", "kind": "multi_hot"}]
    schema = parse({"label": "clicked", "dense": ["price"], "sparse": sparse})
    source = write_parquet(tmp_path / "rows.parquet", rows)
    lines = (dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = PrepareOptions(test_fraction=0.0)
    prepare(str(source), tmp_path / "parquet", options=options, schema=schema)
    prepare(str(tmp_path / "rows.jsonl"), tmp_path / "json", options=options, schema=schema)
    for part in ("digest", "encoding"):
        assert document(tmp_path / "json")[part] == document(tmp_path / "parquet")[part]
    assert len(vocabulary(tmp_path / "json", "day")) == 3


def test_shards_and_batches_do_not_change_the_rows(tmp_path: Path, source: Path, dataset: Path) -> None:
    out = tmp_path / "small"
    prepare(str(source), out, options=PrepareOptions(test_fraction=0.2, shard_rows=333), schema=parse(SCHEMA))
    assert check(out, deep=True).rows == ROWS
    splits = document(out)["splits"]
    assert len(splits["train"]["shards"]) == -(-splits["train"]["rows"] // 333)
    assert 450 < splits["test"]["rows"] < 750
    check(dataset, deep=True)


def test_half_and_half_no_id_changes(tmp_path: Path) -> None:
    """Of the values that one half knows, all keep their ids when the other half is prepared like it."""
    whole = made(rows=4_000)
    halves = [{name: column[part::2] for name, column in whole.items()} for part in (0, 1)]
    one, two = (write_parquet(tmp_path / f"{i}.parquet", half) for i, half in enumerate(halves))
    options = PrepareOptions(test_fraction=0.0)
    prepare(str(one), tmp_path / "one", options=options, schema=parse(SCHEMA))
    prepare(str(two), tmp_path / "apart", options=options, schema=parse(SCHEMA))
    like = PrepareOptions(test_fraction=0.0, like=str(tmp_path / "one"))
    prepare(str(two), tmp_path / "two", options=like)
    digests = [document(tmp_path / name)["encoding"]["digest"] for name in ("one", "two", "apart")]
    assert digests[0] == digests[1] != digests[2]
    known = {value: number for number, value in enumerate(vocabulary(tmp_path / "one", "city"), 2)}
    expected = [0 if each is None else known.get(each, 1) for each in halves[1]["city"]]
    changed = {
        name: float(np.mean(arrays(tmp_path / name, "train")["sparse"][0] != np.array(expected)))
        for name in ("two", "apart")
    }
    assert changed["two"] == 0.0
    assert changed["apart"] > 0.05, "prepared apart, ids differ: otherwise this test shows nothing"
    np.testing.assert_allclose(  # the mean and the deviation are those of the first half, too
        arrays(tmp_path / "two", "train")["dense"][:, 1].mean(), 0.0, atol=0.2
    )
    assert (
        document(tmp_path / "two")["encoding"]["mapping"]["statistics"]
        == (document(tmp_path / "one")["encoding"]["mapping"]["statistics"])
    )


def test_like_refuses_another_schema(tmp_path: Path, source: Path, dataset: Path) -> None:
    other = json.loads(json.dumps(SCHEMA))
    other["sparse"][5]["buckets"] = 60
    options = PrepareOptions(like=str(dataset))
    with pytest.raises(DataError, match=r"differs from that of --like in zip"):
        prepare(str(source), tmp_path / "out", options=options, schema=parse(other))
    assert not (tmp_path / "out").exists()


def test_bad_rows_are_named_and_skipped_only_on_request(tmp_path: Path) -> None:
    rows = made(rows=50)
    rows["price"][17] = math.inf
    labels: list[Any] = [int(each) for each in rows["clicked"]]
    labels[30] = 2
    source = write_parquet(tmp_path / "rows.parquet", {**rows, "clicked": labels})
    schema = parse(SCHEMA)
    with pytest.raises(DataError, match=r"rows\.parquet:31: the label clicked is not 0 or 1: '2'|:18: price"):
        prepare(str(source), tmp_path / "out", schema=schema)
    with pytest.raises(DataError, match="more than the 1 allowed"):
        prepare(str(source), tmp_path / "out", options=PrepareOptions(max_bad_rows=1), schema=schema)
    report = prepare(str(source), tmp_path / "out", options=PrepareOptions(max_bad_rows=2), schema=schema)
    assert (report.rows, report.bad_rows) == (48, 2)
    assert [each.line for each in report.first_bad_rows] == [18, 31]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label": "clickd"}, "has no column clickd; did you mean clicked"),
        ({"dense": ["Price "]}, "has the name 'Price '"),
        ({"dense": [{"name": None, "column": "price"}]}, "dense has the name None"),
        ({"sparse": [{"name": True}]}, "sparse has the name True"),
        ({"dense": ["city"], "sparse": ["user"]}, "column city is string; a dense feature needs numbers"),
        ({"sparse": ["tags"]}, "column tags is list.*a sparse feature needs a text"),
        ({"sparse": [{"name": "city", "kind": "multi_hot"}]}, "column city is string, not lists"),
        ({"sparse": [{"name": "years", "column": "age"}]}, "column age holds numbers with fractions"),
        ({"sparse": [{"name": "city", "max_vocab": 3}]}, "unknown key 'max_vocab'"),
        ({"sparse": [{"name": "city", "kind": "multihot"}]}, "kind of city is 'multihot'; it must be one of"),
        ({"sparse": [{"name": "city", "boundaries": [3, 2]}]}, r"boundaries of city are \[3.0, 2.0\]"),
        ({"sparse": [{"name": "city", "dim": 6}]}, "dim of city is 6; it must be a multiple of 4: take 8"),
        ({"sparse": ["city", "city"]}, "names city twice"),
        ({"sparse": []}, "no sparse feature"),
        ({"dense": "price"}, "dense is 'price'; it must be a list"),
        ({"dense": ["clicked"]}, "reads the label's column"),
        ({"sparse": ["city", {"name": "zip", "table": "city", "encoding": "hash"}]}, "differ in encoding"),
    ],
)
def test_errors_say_what_and_what_to_do(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], message: str
) -> None:
    path = tmp_path / "features.yaml"
    path.write_text(json.dumps({"features": SCHEMA | changed}))  # JSON is YAML
    code = cloudrec(["data", "prepare", str(source), str(tmp_path / "out"), "--features", str(path)])
    printed = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert re.search(message, printed), printed
    assert "remedy:" in printed
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_options_of_criteo_are_refused(tmp_path: Path, source: Path) -> None:
    with pytest.raises(UsageError, match="are those of Criteo's columns"):
        prepare(str(source), tmp_path / "out", options=PrepareOptions(min_frequency=7), schema=parse(SCHEMA))


def test_too_many_values_are_refused(tmp_path: Path, source: Path) -> None:
    with pytest.raises(DataError, match="the table people has more than 100 different values"):
        prepare(
            str(source), tmp_path / "out", options=PrepareOptions(max_vocabulary=100), schema=parse(SCHEMA)
        )


def test_criteo_is_a_schema_and_a_schema_is_read_back() -> None:
    assert parse(CRITEO.to_json()) == CRITEO
    assert parse(parse(SCHEMA).to_json()) == parse(SCHEMA)
    assert len(CRITEO.dense) == 13
    assert len(CRITEO.sparse) == 26
    with pytest.raises(SchemaError, match="did you mean label"):
        parse({"lable": "x", "sparse": ["a"]})


@pytest.mark.parametrize("encoding", ["vocabulary", "hash"])
def test_whole_numbers_of_any_size_and_type_have_the_ids_of_their_texts(
    tmp_path: Path, encoding: str
) -> None:
    numbers = [7, -7, 0, None, 2**22 - 1, 2**22, 2**40, -(2**63), 7, 2**63 - 1]
    columns = {
        "int64": pa.array(numbers),
        "text": pa.array([None if each is None else str(each) for each in numbers]),
        "int16": pa.array([7, -7, 0, None], pa.int16()),
        "uint8": pa.array([7, 255, 0, None], pa.uint8()),
        "uint64": pa.array([7, 2**64 - 1, 0, None], pa.uint64()),
        "float": pa.array([7.0, -7.0, 0.0, None]),
        "null": pa.nulls(3),
    }
    feature = {"name": "x", "encoding": encoding} | ({"min_frequency": 1} if encoding == "vocabulary" else {})
    found: dict[str | None, set[int]] = {}
    for number, column in enumerate(columns.values()):
        table = pa.table({"clicked": [0] * len(column), "x": column})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    options = PrepareOptions(test_fraction=0.0)
    prepare(
        str(tmp_path),
        tmp_path / "out",
        options=options,
        schema=parse({"label": "clicked", "sparse": [feature]}),
    )
    texts = [each for column in columns.values() for each in column.cast(pa.string()).to_pylist()]
    texts = [each.removesuffix(".0") if each else each for each in texts]
    for text, id_ in zip(
        texts, np.load(tmp_path / "out" / "train" / "shard-00000.sparse.npy")[0], strict=True
    ):
        found.setdefault(text, set()).add(int(id_))
    assert found.pop(None) == {0}
    assert all(len(ids) == 1 for ids in found.values())
    assert len(set.union(*found.values())) == len(found)
    if encoding == "vocabulary":
        names = dict(enumerate(vocabulary(tmp_path / "out", "x"), 2))
        assert all(names[id_] == text for text, (id_,) in found.items())


def test_texts_and_numbers_of_one_table_are_counted_together(tmp_path: Path) -> None:
    """7 is in two training rows as a number, in one as a text; 8 is a number in test rows alone."""
    for split, columns in {
        "train": {"clicked": [0, 1, 0], "a": [7, 7, 9], "b": ["7", "8", None]},
        "test": {"clicked": [0, 1], "a": [8, 5_000_000], "b": ["9", "5000000"]},
    }.items():
        (tmp_path / "in" / split).mkdir(parents=True)
        pq.write_table(pa.table(columns), tmp_path / "in" / split / "rows.parquet")
    sparse = [{"name": name, "table": "t", "min_frequency": 1} for name in ("a", "b")]
    prepare(str(tmp_path / "in"), tmp_path / "out", schema=parse({"label": "clicked", "sparse": sparse}))
    assert vocabulary(tmp_path / "out", "t") == ["7", "8", "9"]
    ids = {
        each: np.load(tmp_path / "out" / each / "shard-00000.sparse.npy").tolist()
        for each in ("train", "test")
    }
    assert ids == {"train": [[2, 2, 4], [2, 3, 0]], "test": [[3, 1], [4, 1]]}


@pytest.mark.parametrize(
    "values", [['"', "a"], ["a\nb"], ["\\"], ["\x1f", "\x7f"], ["ä", '"\n"'], ["x"], [""], []]
)
def test_vocabulary_files_are_json(values: list[str]) -> None:
    assert [json.loads(line) for line in to_lines(values).decode().split("\n")[:-1]] == values
    assert texts_in(to_lines(values)) == values


@pytest.mark.parametrize("encoding", ["vocabulary", "hash"])
@pytest.mark.parametrize("limit", [None, 2000, 100])
def test_dictionaries_of_a_parquet_file_do_not_change_its_dataset(
    tmp_path: Path, encoding: str, limit: int | None
) -> None:
    """With a limit, the file gives up its dictionaries within a row group."""
    source = random.Random(1)  # noqa: S311 - rows, not secrets
    words = ["", *(f"word {each}" for each in range(500))]
    rows = 150_000
    table = pa.table(
        {
            "clicked": pa.array([0, 1] * (rows // 2)),
            "one": pa.array(source.choices([None, *words], k=rows)),
            "many": pa.array(
                [
                    None if not n else [None, *source.choices(words, k=n)][n % 2 :]
                    for n in source.choices(range(5), k=rows)
                ],
                pa.list_(pa.string()),
            ),
        }
    )
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False)
    options = {} if limit is None else {"dictionary_pagesize_limit": limit, "data_page_size": 10_000}
    pq.write_table(table, tmp_path / "dictionaries.parquet", row_group_size=100_000, **options)
    sparse = [
        {"name": "one", "encoding": encoding},
        {"name": "many", "kind": "multi_hot", "encoding": encoding},
    ]
    digests = set()
    for name in ("plain", "dictionaries"):
        schema = parse({"label": "clicked", "sparse": sparse})
        prepare(str(tmp_path / f"{name}.parquet"), tmp_path / name, schema=schema)
        digests.add((document(tmp_path / name)["digest"], document(tmp_path / name)["encoding"]["digest"]))
    assert len(digests) == 1


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("y,x,x,c\n0,1,2,a\n")
    schema = parse({"label": "y", "dense": ["x"], "sparse": ["c"]})
    with pytest.raises(DataError, match="has 2 columns named x"):
        prepare(str(tmp_path / "rows.csv"), tmp_path / "out", schema=schema)


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("index", [pa.int32(), pa.uint32()], ids=str)
def test_arrow_files_may_have_categories_of_any_kind(
    tmp_path: Path, kind: pa.DataType, index: pa.DataType
) -> None:
    places = pa.array([0, 1, None, 1] * 10, index)
    column = pa.DictionaryArray.from_arrays(places, pa.array(["one", "two"], kind))
    table = pa.table({"y": [0, 1] * 20, "x": [0.5] * 40, "c": column})
    pa.feather.write_feather(table, tmp_path / "rows.feather", compression="uncompressed")
    schema = parse({"label": "y", "dense": ["x"], "sparse": [{"name": "c", "min_frequency": 1}]})
    options = PrepareOptions(test_fraction=0.0)
    prepare(str(tmp_path / "rows.feather"), tmp_path / "out", options=options, schema=schema)
    assert sorted(vocabulary(tmp_path / "out", "c")) == ["one", "two"]
    sparse = np.load(tmp_path / "out" / "train" / "shard-00000.sparse.npy")
    assert sorted(set(np.ravel(sparse).tolist())) == [0, 2, 3]
