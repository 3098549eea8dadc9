"""`data prepare` with several labels, and with weights of the samples."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.cli.main import run as cloudrec
from cloudrec.data.check import check
from cloudrec.data.format import manifest
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError
from cloudrec_contract.features import parse

SCHEMA: dict[str, Any] = {
    "labels": ["clicked", {"name": "bought", "column": "sale", "weight": 2, "missing": "skip"}],
    "weight": "importance",
    "dense": ["price"],
    "sparse": [{"name": "city", "min_frequency": 1}],
}
ONE = {key: value for key, value in SCHEMA.items() if key not in ("labels", "weight")} | {"label": "clicked"}
ROWS = 1_000
FIRST = "train/shard-00000"


def made() -> dict[str, list[Any]]:
    random = np.random.default_rng(4)
    return {
        "clicked": random.integers(0, 2, ROWS).tolist(),
        "sale": [[None, 0, 1][each] for each in random.integers(0, 3, ROWS)],
        "importance": random.choice([0.0, 0.5, 3.0], ROWS).tolist(),
        "price": random.random(ROWS).tolist(),
        "city": [f"c{each}" for each in random.integers(0, 9, ROWS)],
        "shop": ["corner"] * ROWS,
    }


def _write(path: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def _prepare(source: Path, out: Path, schema: dict[str, Any], **options: Any) -> Path:
    prepare(str(source), out, options=PrepareOptions(test_fraction=0.0, **options), schema=parse(schema))
    return out


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("labels") / "rows.parquet", made())


@pytest.fixture
def dataset(source: Path, tmp_path: Path) -> Path:
    return _prepare(source, tmp_path / "dataset", SCHEMA)


def _load(dataset: Path, kind: str) -> np.ndarray:
    found: np.ndarray = np.load(dataset / f"{FIRST}.{kind}.npy")
    return found


def test_labels_and_weights_are_those_of_the_rows(dataset: Path) -> None:
    rows, content = made(), json.loads((dataset / manifest.NAME).read_text())
    sales = [255 if each is None else each for each in rows["sale"]]
    assert _load(dataset, "labels").tolist() == [rows["clicked"], sales]
    assert _load(dataset, "labels").dtype == np.uint8
    np.testing.assert_array_equal(_load(dataset, "weights"), np.array(rows["importance"], np.float32))
    assert content["splits"]["train"]["positives"] == [sum(rows["clicked"]), sales.count(1)]
    assert content["splits"]["test"]["positives"] == [0, 0]
    assert parse(content["features"]) == parse(SCHEMA)
    assert check(dataset, deep=True).rows == ROWS


def test_shards_and_text_files_do_not_change_the_rows(dataset: Path, tmp_path: Path) -> None:
    rows = made()
    lines = (dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    csv = [
        ",".join(rows),
        *(
            ",".join("" if each is None else str(each) for each in row)
            for row in zip(*rows.values(), strict=True)
        ),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(csv) + "\n")
    for name in ("rows.jsonl", "rows.csv"):
        other = _prepare(tmp_path / name, tmp_path / f"{name}.out", SCHEMA, shard_rows=300)
        check(other, deep=True)
        for kind in ("labels", "weights"):
            parts = [np.load(path) for path in sorted(other.glob(f"train/*.{kind}.npy"))]
            assert len(parts) == 4
            np.testing.assert_array_equal(np.concatenate(parts, axis=-1), _load(dataset, kind))


def test_one_label_is_written_as_it_was_before_there_could_be_several(source: Path, tmp_path: Path) -> None:
    one = _prepare(source, tmp_path / "one", ONE)
    content = json.loads((one / manifest.NAME).read_text())
    assert _load(one, "labels").tolist() == made()["clicked"]
    assert list(content["splits"]["train"]["shards"][0]["files"]) == ["labels", "dense", "sparse"]
    assert content["splits"]["train"]["positives"] == sum(made()["clicked"])
    assert list(content["features"]) == ["label", "dense", "sparse"]
    weighted = _prepare(source, tmp_path / "weighted", ONE | {"weight": "importance"})
    assert _load(weighted, "weights").tolist() == made()["importance"]
    assert _load(weighted, "labels").tolist() == made()["clicked"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("clicked", None, "rows.parquet:7: the label clicked is not 0 or 1"),
        ("sale", 2, "rows.parquet:7: the label sale is not 0 or 1: '2'"),
        ("importance", -0.5, "rows.parquet:7: the weight importance is not a finite number from 0: '-0.5'"),
        ("importance", float("nan"), "the weight importance is not a finite number from 0"),
        ("importance", None, "the weight importance is not a finite number from 0"),
        ("importance", float("inf"), "the weight importance is not a finite number from 0"),
        ("importance", 1e39, "the weight importance is not a finite number from 0"),
    ],
)
def test_a_row_with_a_bad_label_or_weight_is_named(
    tmp_path: Path, column: str, value: object, message: str
) -> None:
    rows = made()
    rows[column][6] = value
    source = _write(tmp_path / "rows.parquet", rows)
    with pytest.raises(DataError, match=re.escape(message)):
        _prepare(source, tmp_path / "out", SCHEMA)
    out = _prepare(source, tmp_path / "out", SCHEMA, max_bad_rows=1)
    assert _load(out, "labels").shape == (2, ROWS - 1)
    assert _load(out, "weights").shape == (ROWS - 1,)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label": "clicked"}, "features has label and labels; keep labels"),
        ({"labels": ["clicked"]}, "labels has one label; it takes 2 to 64"),
        ({"labels": "clicked"}, "labels is 'clicked'; it must be a list"),
        ({"labels": ["clicked", "clicked"]}, "labels has the name clicked twice"),
        ({"labels": ["clicked", {"name": "b", "column": "clicked"}]}, "labels has the column clicked twice"),
        ({"labels": ["clickd", "sale"]}, "has no column clickd.*did you mean"),
        ({"labels": ["clicked", "shop"]}, "the label shop is not 0 or 1: 'corner"),
        ({"labels": ["clicked", {"name": "sale", "weight": 0}]}, "weight of sale is 0; it must be a number"),
        ({"labels": ["clicked", {"name": "sale", "missing": True}]}, "missing of sale is True; it must be"),
        ({"labels": ["clicked", {"name": "sale", "wieght": 2}]}, "unknown key 'wieght'; did you mean weight"),
        ({"weight": "sale"}, "weight is sale, the column of a label"),
        ({"weight": "shop"}, "column shop is string; a weight needs numbers"),
        ({"weight": 3}, "weight is 3; it must be a text"),
        ({"dense": ["sale"]}, "sale reads the label's column sale"),
        ({"dense": ["importance"]}, "importance reads the weights' column importance"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], message: str
) -> None:
    path = tmp_path / "features.yaml"
    path.write_text(json.dumps(SCHEMA | changed))  # JSON is YAML
    code = cloudrec(["data", "prepare", str(source), str(tmp_path / "out"), "--features", str(path)])
    printed = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert re.search(message, printed), printed
    assert "remedy:" in printed
    assert not (tmp_path / "out" / manifest.NAME).exists()


@pytest.mark.parametrize(
    ("kind", "index", "value", "message"),
    [
        ("labels", (0, 5), 255, "holds a label other than 0 and 1"),
        ("labels", (1, 5), 2, "holds a label other than 0 and 1"),
        ("weights", 5, -1.0, "holds a weight that is no finite number from 0"),
        ("weights", 5, np.nan, "holds a weight that is no finite number from 0"),
    ],
)
def test_a_deep_check_detects_a_changed_label_or_weight(
    dataset: Path, kind: str, index: Any, value: float, message: str
) -> None:
    array = _load(dataset, kind)
    array[index] = value
    np.save(dataset / f"{FIRST}.{kind}.npy", array)
    with pytest.raises(DataError, match="is damaged: its crc32 is"):
        check(dataset, deep=True)
    _resign(dataset, kind)
    with pytest.raises(DataError, match=message):
        check(dataset, deep=True)


def _resign(dataset: Path, kind: str) -> None:
    """Make dataset.json agree with the file, as a faulty writer would."""
    path = dataset / manifest.NAME
    content = json.loads(path.read_text())
    data = (dataset / f"{FIRST}.{kind}.npy").read_bytes()
    content["splits"]["train"]["shards"][0]["files"][kind]["crc32"] = f"{zlib.crc32(data):08x}"
    content["digest"] = manifest.digest(content["splits"], content["num_embeddings_per_feature"])
    path.write_text(json.dumps(content))


def test_like_takes_the_labels_of_the_dataset(dataset: Path, source: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert cloudrec(["data", "prepare", str(source), str(again), "--like", str(dataset)]) == 0
    content = json.loads((again / manifest.NAME).read_text())
    assert parse(content["features"]) == parse(SCHEMA)
    assert len(content["splits"]["train"]["positives"]) == 2
