"""Transforms of dense features in `data prepare`: the numbers that plain Python computes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.folder import claimed
from cloudrec.data.prepare.many.parts import make_job, prepare_parts
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.prepare.table_files import find_tables
from cloudrec.data.prepare.table_pipeline import TablePreparation
from cloudrec.errors import DataError
from cloudrec_contract.features import SchemaError, parse
from tests.unit.data.test_prepare_parts import Twice, contents, described

VALUES = [None, -1e6, -3.0, -0.5, 0.0, 2.0, 7.5, 1e39]
WHOLE = PrepareOptions(test_fraction=0.0)


def _prepared(folder: Path, values: list[Any], options: PrepareOptions = WHOLE, **keys: Any) -> np.ndarray:
    pq.write_table(
        pa.table({"y": [0] * len(values), "c": ["a"] * len(values), "x": values}), folder / "rows.parquet"
    )
    schema = parse({"label": "y", "dense": [{"name": "x", **keys}], "sparse": ["c"]})
    prepare(str(folder / "rows.parquet"), folder / "out", options=options, schema=schema)
    dense: np.ndarray = np.load(folder / "out" / "train" / "shard-00000.dense.npy")
    return dense[:, 0]


def _clipped(value: float | None) -> float:
    return min(max(1.5 if value is None else value, -2.0), 6.0)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("none", lambda x: x),
        ("log1p", lambda x: math.log1p(max(x, 0.0))),
        ("signed_log1p", lambda x: math.copysign(math.log1p(abs(x)), x)),
        ("min_max", lambda x: (x + 2) / 8),
    ],
)
def test_numbers_are_clipped_and_then_transformed(tmp_path: Path, transform: str, expected: Any) -> None:
    found = _prepared(tmp_path, VALUES, clip=[-2, 6], transform=transform, missing=1.5)
    np.testing.assert_allclose(found, [expected(_clipped(each)) for each in VALUES], rtol=1e-6)


def test_the_mean_is_that_of_clipped_numbers(tmp_path: Path) -> None:
    found = _prepared(tmp_path, VALUES, clip=[-2, 6], transform="normalise", missing=1.5)
    numbers = np.array([_clipped(each) for each in VALUES])
    np.testing.assert_allclose(found, (numbers - numbers.mean()) / numbers.std(), rtol=1e-5)


def test_a_missing_value_is_clipped_too_and_an_infinite_one_is_malformed(tmp_path: Path) -> None:
    assert _prepared(tmp_path, [None, 1.0], clip=[2, 3]).tolist() == [2.0, 2.0]
    with pytest.raises(DataError, match=r"rows\.parquet:2: x is no finite number: 'inf'"):
        _prepared(tmp_path, [0.0, math.inf], options=PrepareOptions(overwrite=True), clip=[2, 3])


def test_the_range_is_that_of_the_training_rows_and_like_keeps_it(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=400)
    found = _prepared(
        tmp_path, values.tolist(), PrepareOptions(shard_rows=1_000, test_fraction=0.3), transform="min_max"
    )
    assert (found.min(), found.max()) == (0.0, 1.0)
    test = np.load(tmp_path / "out" / "test" / "shard-00000.dense.npy")[:, 0]
    every = np.sort(np.concatenate([found, test]))
    rules = json.loads((tmp_path / "out" / "dataset.json").read_text())["encoding"]["mapping"]
    known = rules["statistics"]["x"]
    assert known["least"] in values
    assert known["most"] in values
    expected = (np.sort(values) - known["least"]) / (known["most"] - known["least"])
    np.testing.assert_allclose(every, expected, rtol=1e-6, atol=1e-6)
    pq.write_table(
        pa.table({"y": [0, 0], "c": ["a", "b"], "x": [known["least"], 99.0]}), tmp_path / "new.parquet"
    )
    like = PrepareOptions(like=str(tmp_path / "out"), test_fraction=0.0)
    prepare(str(tmp_path / "new.parquet"), tmp_path / "new", options=like)
    later = np.load(tmp_path / "new" / "train" / "shard-00000.dense.npy")[:, 0]
    np.testing.assert_allclose(
        later, [0.0, (99 - known["least"]) / (known["most"] - known["least"])], rtol=1e-6
    )


def test_equal_numbers_have_a_range_of_1(tmp_path: Path) -> None:
    assert _prepared(tmp_path, [3.0, 3.0], transform="min_max").tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [0.0312345678912, 1 / 3, 1e30, -7.1])
@pytest.mark.parametrize("rows", [1_000, 4_999])
def test_equal_numbers_are_normalised_to_0(tmp_path: Path, value: float, rows: int) -> None:
    assert not _prepared(tmp_path, [value] * rows, transform="normalise").any()


def test_numbers_far_from_0_are_normalised_to_the_mean_0(tmp_path: Path) -> None:
    numbers = [1_234_567_890_123.0 + row % 101 - 50 for row in range(1_010)]
    found = _prepared(tmp_path, numbers, transform="normalise")
    assert abs(float(found.mean())) < 1e-3
    assert abs(float(found.std()) - 1) < 1e-3


def test_a_number_that_float32_does_not_have_is_malformed_and_a_later_one_is_limited(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="x is no finite number"):
        _prepared(tmp_path, [0.0, 1.0, 1.797e308], transform="normalise")
    folder = tmp_path / "more"
    folder.mkdir()
    _prepared(folder, [1e-3, 2e-3, 1.5e-3], transform="min_max")
    table = {"y": [0, 1], "c": ["a", "a"], "x": [1.5e-3, 3e37]}
    pq.write_table(pa.table(table), tmp_path / "later.parquet")
    like = PrepareOptions(test_fraction=0.0, like=str(folder / "out"))
    prepare(str(tmp_path / "later.parquet"), tmp_path / "later", options=like)
    found = np.load(tmp_path / "later" / "train" / "shard-00000.dense.npy")[:, 0]
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(0.5)


@pytest.mark.parametrize("clip", [[3, 2], [1, 1], [1], [1, 2, 3]])
def test_limits_that_cannot_be_are_refused(clip: list[int]) -> None:
    with pytest.raises(SchemaError, match=r"clip of x is .*; it must be the least and the most number"):
        parse({"label": "y", "dense": [{"name": "x", "clip": clip}], "sparse": ["c"]})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"clip": 3}, "clip of x is 3; it must be a list"),
        ({"clip": [0, "a"]}, "clip of x is 'a'; it must be a finite number"),
        ({"transform": "sqrt"}, "it must be one of none, log1p, signed_log1p, normalise, min_max"),
    ],
)
def test_values_of_another_kind_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "y", "dense": [{"name": "x", **keys}], "sparse": ["c"]})


def test_the_schema_comes_back_and_others_stay_as_they_were() -> None:
    schema = parse({"label": "y", "dense": ["x", {"name": "z", "clip": [0, 1]}], "sparse": ["c"]})
    assert parse(schema.to_json()) == schema
    assert schema.mapping()[1]["clip"] == [0.0, 1.0]
    for each in (schema.to_json()["dense"][0], schema.mapping()[0]):
        assert "clip" not in each


def test_json_lines_and_parts_have_the_bytes_of_one_machine(tmp_path: Path) -> None:
    """Also of a column that two features read."""
    dense: list[Any] = ["x", {"name": "range", "column": "x", "transform": "min_max", "clip": [-2, 2]}]
    schema = parse({"label": "y", "dense": dense, "sparse": ["c"]})
    (tmp_path / "rows").mkdir()
    for number in range(3):
        values = np.random.default_rng(number).normal(size=300).tolist()
        table = {"y": [0] * 300, "c": ["a"] * 300, "x": values}
        pq.write_table(pa.table(table), tmp_path / "rows" / f"{number}.parquet")
        lines = [json.dumps(dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    options = PrepareOptions(shard_rows=130)
    prepare(str(tmp_path / "rows"), tmp_path / "one", options=options, schema=schema)
    prepare(str(tmp_path / "*.jsonl"), tmp_path / "json", options=options, schema=schema)
    files = find_tables([str(tmp_path / "rows")])
    with claimed(tmp_path / "many", overwrite=False) as workspace:
        head = TablePreparation(workspace, options, files, schema, progress=lambda _done, _total: None)
        job = make_job(tmp_path / "many", options, files, schema, ())
        made = prepare_parts(job, head, Twice(), known=None, progress=lambda _done, _total: None)
        workspace.commit(made, head.bad_rows)
    assert contents(tmp_path / "many") == contents(tmp_path / "one") == contents(tmp_path / "json")
    assert described(tmp_path / "many") == described(tmp_path / "one")
