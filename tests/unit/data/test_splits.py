"""Splits by time and by user in `data prepare`."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.check import check
from cloudrec.data.prepare.folder import claimed
from cloudrec.data.prepare.many.parts import make_job, prepare_parts
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.prepare.splits import Sample
from cloudrec.data.prepare.table_files import find_tables
from cloudrec.data.prepare.table_pipeline import TablePreparation
from cloudrec.errors import DataError, UsageError
from cloudrec_contract.features import SchemaError, parse
from tests.unit.data.test_prepare_parts import Twice, contents, described

ROWS = 2_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def _schema(**split: Any) -> Any:
    return parse({"label": "y", "dense": ["number"], "sparse": ["c"], "split": split})


def _rows(seed: int = 0, count: int = ROWS) -> dict[str, list[Any]]:
    source = random.Random(seed)  # noqa: S311 - rows, not secrets
    seconds = [source.randrange(10**6) for _ in range(count)]
    return {
        "y": [source.randrange(2) for _ in range(count)],
        "number": list(range(count)),
        "c": [source.choice("abc") for _ in range(count)],
        "seconds": seconds,
        "ts": [BEGIN + timedelta(seconds=each) for each in seconds],
        "user": [source.randrange(300) for _ in range(count)],
    }


def _prepared(
    folder: Path, rows: dict[str, list[Any]], schema: Any, options: PrepareOptions | None = None
) -> dict[str, list[int]]:
    """The numbers of the rows of each split."""
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / "out", options=options, schema=schema)
    return _numbers(folder / "out")


def _numbers(out: Path) -> dict[str, list[int]]:
    check(out, deep=True)
    return {
        split: [
            int(each)
            for path in sorted((out / split).glob("*.dense.npy"))
            for each in np.load(path)[:, 0].tolist()
        ]
        for split in ("train", "test")
    }


@pytest.mark.parametrize("column", ["seconds", "ts"])
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_the_newest_rows_are_held_out(tmp_path: Path, column: str, share: float) -> None:
    rows = _rows()
    found = _prepared(tmp_path, rows, _schema(by="time", column=column, test=share))
    first = sorted(rows["seconds"])[math.floor(ROWS * (1 - share))]
    assert found["test"] == [row for row, each in enumerate(rows["seconds"]) if each >= first]
    assert found["train"] == [row for row, each in enumerate(rows["seconds"]) if each < first]
    assert len(found["test"]) == pytest.approx(share * ROWS, abs=2)


@pytest.mark.parametrize(
    ("column", "since"),
    [
        ("seconds", 700_000),
        ("ts", "2026-01-09T02:26:40"),
        ("ts", "2026-01-09 03:26:40+01:00"),
        ("ts", int(BEGIN.timestamp() + 700_000) * 1_000_000),
    ],
)
def test_rows_from_a_time_on_are_held_out(tmp_path: Path, column: str, since: Any) -> None:
    rows = _rows()
    found = _prepared(tmp_path, rows, _schema(**{"by": "time", "column": column, "from": since}))
    assert found["test"] == [row for row, each in enumerate(rows["seconds"]) if each >= 700_000]
    assert 0 < len(found["test"]) < ROWS / 2


def test_all_rows_of_a_user_are_in_one_split(tmp_path: Path) -> None:
    rows = _rows()
    found = _prepared(tmp_path, rows, _schema(by="user", column="user", test=0.2))
    users = {split: {rows["user"][row] for row in found[split]} for split in found}
    assert not users["train"] & users["test"]
    assert len(found["train"]) + len(found["test"]) == ROWS
    assert 30 < len(users["test"]) < 90, "a fifth of 300 users"
    other = _prepared(
        tmp_path,
        rows,
        _schema(by="user", column="user", test=0.2),
        PrepareOptions(seed=1, overwrite=True),
    )
    assert {rows["user"][row] for row in other["test"]} != users["test"]


def test_a_user_is_in_the_same_split_whatever_the_type_and_the_other_rows(tmp_path: Path) -> None:
    rows, users = _rows(), []
    for values in (
        rows["user"],
        [float(each) for each in rows["user"]],
        [str(each) for each in rows["user"]],
        pa.array([str(each) for each in rows["user"]]).dictionary_encode(),
    ):
        options = PrepareOptions(overwrite=True, shard_rows=300)
        schema = _schema(by="user", column="user", test=0.2)
        found = _prepared(tmp_path, {**rows, "user": values}, schema, options)
        users.append(found["test"])
    assert users[0] == users[1] == users[2] == users[3]
    half = {name: column[1000:] for name, column in rows.items()}
    later = _prepared(tmp_path, half, schema, PrepareOptions(overwrite=True))
    assert later["test"] == [row for row in users[0] if row >= 1000]


def test_users_are_divided_evenly_whatever_their_names(tmp_path: Path) -> None:
    for pattern in ("{}", "user-{:012d}", "{}@example.com", "{:08x}-aaaa-bbbb-cccc-dddddddddddd"):
        names = [pattern.format(each) for each in range(20_000)]
        rows: dict[str, list[Any]] = {
            "y": [1] * 20_000,
            "number": list(range(20_000)),
            "c": names,
            "user": names,
        }
        options = PrepareOptions(overwrite=True)
        found = _prepared(tmp_path, rows, _schema(by="user", column="user", test=0.1), options)
        assert 1_850 < len(found["test"]) < 2_150, "4 deviations of a binomial are 170"


@pytest.mark.parametrize(
    "split",
    [
        {"by": "time", "column": "ts", "test": 0.15},
        {"by": "time", "column": "seconds", "from": 500_000},
        {"by": "user", "column": "user", "test": 0.15},
    ],
)
def test_other_formats_and_parts_have_the_same_rows(tmp_path: Path, split: dict[str, Any]) -> None:
    (tmp_path / "rows").mkdir()
    every = [_rows(number, 400 + 100 * number) for number in range(3)]
    for number, rows in enumerate(every):
        pq.write_table(pa.table(rows), tmp_path / "rows" / f"{number}.parquet")
        texts = {**rows, "ts": [each.isoformat() for each in rows["ts"]]}
        lines = [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        table = [",".join(texts), *(",".join(str(each) for each in line.values()) for line in lines)]
        (tmp_path / f"{number}.csv").write_text("\n".join(table) + "\n")
    schema, options = _schema(**split), PrepareOptions(shard_rows=130)
    prepare(str(tmp_path / "rows"), tmp_path / "one", options=options, schema=schema)
    assert 0 < len(_numbers(tmp_path / "one")["test"]) < 1_000
    for suffix in ("csv", "jsonl"):
        out = tmp_path / f"of-{suffix}"
        prepare(str(tmp_path / f"*.{suffix}"), out, options=options, schema=schema)
        assert described(out)["digest"] == described(tmp_path / "one")["digest"]
    files = find_tables([str(tmp_path / "rows")])
    with claimed(tmp_path / "many", overwrite=False) as workspace:
        head = TablePreparation(workspace, options, files, schema, progress=lambda _done, _total: None)
        job = make_job(tmp_path / "many", options, files, schema, ())
        made = prepare_parts(job, head, Twice(), known=None, progress=lambda _done, _total: None)
        workspace.commit(made, head.bad_rows)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert described(tmp_path / "many") == described(tmp_path / "one")


def test_more_data_like_it_is_not_split_by_the_rule(tmp_path: Path) -> None:
    """Raw rows that are scored need neither the column nor another order."""
    rows = _rows()
    _prepared(tmp_path, rows, _schema(by="user", column="user", test=0.2))
    del rows["user"]
    pq.write_table(pa.table(rows), tmp_path / "later.parquet")
    like = PrepareOptions(like=str(tmp_path / "out"), test_fraction=0.0)
    prepare(str(tmp_path / "later.parquet"), tmp_path / "later", options=like)
    assert _numbers(tmp_path / "later")["train"] == list(range(ROWS))
    encodings = [described(tmp_path / name)["encoding"]["digest"] for name in ("out", "later")]
    assert encodings[0] == encodings[1]


@pytest.mark.parametrize(
    ("split", "column", "value", "message"),
    [
        ({"by": "user", "column": "user", "test": 0.1}, "user", None, "user, by which rows .* has no user"),
        ({"by": "time", "column": "ts", "test": 0.1}, "ts", None, "ts, by which rows are split, has no time"),
    ],
)
def test_a_row_without_a_split_is_named(
    tmp_path: Path, split: dict[str, Any], column: str, value: Any, message: str
) -> None:
    rows = _rows()
    rows[column][5] = value
    with pytest.raises(DataError, match=rf"rows\.parquet:6: {message}"):
        _prepared(tmp_path, rows, _schema(**split))
    found = _prepared(tmp_path, rows, _schema(**split), PrepareOptions(max_bad_rows=1))
    assert sorted(found["train"] + found["test"]) == [row for row in range(ROWS) if row != 5]


def test_texts_that_are_no_times_are_named(tmp_path: Path) -> None:
    rows = {**_rows(), "ts": ["2026-05-01"] * ROWS}
    rows["ts"][7] = "yesterday"
    with pytest.raises(DataError, match=r"rows\.parquet:8: ts, .* has no time: 'yesterday'"):
        _prepared(tmp_path, rows, _schema(**{"by": "time", "column": "ts", "from": "2026-05-02"}))


def test_what_contradicts_the_rule_is_refused(tmp_path: Path) -> None:
    rows, schema = _rows(), _schema(by="time", column="seconds", test=0.1)
    with pytest.raises(UsageError, match=r"--test-fraction is 0\.2, but the schema's `split`"):
        _prepared(tmp_path, rows, schema, PrepareOptions(test_fraction=0.2))
    (tmp_path / "both" / "train").mkdir(parents=True)
    pq.write_table(pa.table(rows), tmp_path / "both" / "train" / "rows.parquet")
    with pytest.raises(UsageError, match="the files are in the folders train/ and test/"):
        prepare(str(tmp_path / "both"), tmp_path / "other", schema=schema)
    with pytest.raises(DataError, match="has no column clock"):
        _prepared(tmp_path, rows, _schema(by="time", column="clock", test=0.1))
    with pytest.raises(
        DataError, match=r"the column lists is list.*; a split by time needs a time or a number"
    ):
        _prepared(
            tmp_path,
            {**rows, "lists": [[1]] * ROWS},
            _schema(by="time", column="lists", test=0.1),
        )
    with pytest.raises(DataError, match="no row has a time in the column none"):
        _prepared(tmp_path, {**rows, "none": [None] * ROWS}, _schema(by="time", column="none", test=0.1))
    with pytest.raises(DataError, match="there are no training rows"):
        _prepared(tmp_path, {**rows, "same": [3] * ROWS}, _schema(by="time", column="same", test=0.1))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "day", "column": "ts", "test": 0.1}, "by of split is 'day'; it must be one of time, user"),
        ({"by": "time", "test": 0.1}, "column of split is None; it must be a text"),
        ({"by": "time", "column": "ts"}, "split by time needs test, or from, and nothing else"),
        ({"by": "time", "column": "ts", "test": 0.1, "from": 3}, "split by time needs test, or from,"),
        ({"by": "user", "column": "u", "from": 3}, "split by user needs test and nothing else"),
        (
            {"by": "user", "column": "u", "test": 1.0},
            "test of split is 1.0; it must be a share between 0 and",
        ),
        ({"by": "time", "column": "ts", "from": "May"}, "from of split is 'May'; it must be a number, or a"),
        ({"by": "time", "column": "y", "test": 0.1}, "split reads y, the column of a label"),
        ({"by": "time", "colum": "ts"}, "split has an unknown key 'colum'; did you mean column"),
        ("time", "split is 'time'; it must be keys and values"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(split: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "y", "sparse": ["c"], "split": split})


def test_the_schema_comes_back_and_others_stay_as_they_were() -> None:
    for split in ({"test": 0.1}, {"from": 3}, {"from": "2026-05-01"}):
        schema = _schema(by="time", column="ts", **split)
        assert parse(schema.to_json()) == schema
    assert "split" not in parse({"label": "y", "sparse": ["c"]}).to_json()


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "equal"])
def test_a_sample_of_many_numbers_is_near_their_quantile(order: str) -> None:
    count = 3_000_000
    numbers = np.random.default_rng(0).normal(size=count)
    numbers[0] = 1e300  # one outlier
    if order != "random":
        numbers = np.sort(numbers)[:: -1 if order == "descending" else 1]
    if order == "equal":
        numbers = np.round(numbers)
    whole = Sample()
    for start in range(0, count, 70_000):
        whole.add(numbers[start : start + 70_000])
    parts = Sample()
    for part in np.array_split(numbers, 7):
        each = Sample()
        each.add(part)
        parts.merge(each)
    for sample in (whole, parts):
        found = sample.quantile(0.9, "t")
        less, most = (float(np.mean(numbers < found)), float(np.mean(numbers <= found)))
        assert less - 1e-3 < 0.9 < most + 1e-3
        assert sum(map(len, sample._levels)) < 1 << 20
