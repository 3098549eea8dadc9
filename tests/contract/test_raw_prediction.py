"""`predict --raw`: raw rows get the scores of `data prepare --like` and `predict`, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_runs import Outcome, run_here
from tests.unit.data.support_rows import good_text
from trainer.base.errors import DatasetError
from trainer.commands import export, predict

ROWS = 1_500
SCHEMA = parse(
    {
        "label": "clicked",
        "dense": [{"name": "price", "transform": "normalise", "missing": "error"}],
        "sparse": ["city", {"name": "tags", "kind": "multi_hot", "separator": "|", "min_frequency": 1}],
    }
)
MODEL: dict[str, Any] = {"embedding_dim": 4, "dense_arch_layer_sizes": (4,), "over_arch_layer_sizes": (8, 1)}
MODEL |= {"batch_size": 100, "num_epochs": 1, "threads": 1}


def _rows(seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    tags = [
        "|".join(f"t{each}" for each in random.integers(0, 9, random.integers(0, 4))) for _ in range(ROWS)
    ]
    return {
        "clicked": random.integers(0, 2, ROWS).tolist(),
        "price": random.normal(size=ROWS).tolist(),
        "city": [None if each == 3 else f"city {each}" for each in random.integers(0, 50, ROWS).tolist()],
        "tags": [each or None for each in tags],
    }


def _without(rows: dict[str, list[Any]], *columns: str) -> dict[str, list[Any]]:
    return {name: values for name, values in rows.items() if name not in columns}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("learned")
    pq.write_table(pa.table(_rows(1)), folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / "data", schema=SCHEMA)
    return run_here(folder / "data", folder / "run", **MODEL)


@pytest.fixture(scope="module")
def checkpoints(learned: Outcome) -> Path:
    return learned.directory / "checkpoints"


def _predict(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert predict.main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out) if code == 0 else captured.err


def test_raw_files_get_the_scores_of_prepared_ones(
    learned: Outcome, checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table(_rows(2)), tmp_path / "one.parquet")
    with pa.CompressedOutputStream(str(tmp_path / "two.csv.gz"), "gzip") as packed:
        pa.csv.write_csv(pa.table(_rows(3)), packed)
    files = [tmp_path / "one.parquet", tmp_path / "two.csv.gz"]
    like = PrepareOptions(like=str(learned.directory.parent / "data"), test_fraction=0.0)
    prepare([str(each) for each in files], tmp_path / "prepared", options=like)
    assert export.main(["--checkpoint", str(checkpoints), "--out", str(tmp_path / "model")]) == 0
    capsys.readouterr()
    found = {}
    for name, model in {"run": checkpoints, "export": tmp_path / "model"}.items():
        data = {"raw": ["--raw", *files], "prepared": ["--dataset_path", tmp_path / "prepared"]}
        for kind, words in data.items():
            split = ["--split", "train"] if kind == "prepared" else []
            out = tmp_path / f"{name}-{kind}.npy"
            found[out.name] = _predict(capsys, "--checkpoint", model, *words, *split, "--out", out)
            assert out.read_bytes() == (tmp_path / "run-raw.npy").read_bytes()
    assert found["run-raw.npy"]["samples"] == 2 * ROWS
    assert found["run-raw.npy"]["auc"] == found["run-prepared.npy"]["auc"] == found["export-raw.npy"]["auc"]
    assert np.unique(np.load(tmp_path / "run-raw.npy")).size > ROWS


def test_rows_without_a_label_get_the_same_scores_and_no_metrics(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(2)
    pq.write_table(pa.table(rows), tmp_path / "known.parquet")
    lines = [json.dumps(dict(zip(rows, row, strict=True))) for row in zip(*rows.values(), strict=True)]
    del rows["clicked"]
    unlabelled = [json.dumps({key: json.loads(line)[key] for key in rows}) for line in lines]
    (tmp_path / "unknown.jsonl").write_text("\n".join(unlabelled) + "\n")
    results = [
        _predict(
            capsys, "--checkpoint", checkpoints, "--raw", tmp_path / name, "--out", tmp_path / f"{name}.npy"
        )
        for name in ("known.parquet", "unknown.jsonl")
    ]
    assert (tmp_path / "known.parquet.npy").read_bytes() == (tmp_path / "unknown.jsonl.npy").read_bytes()
    assert results[0]["logloss"] > 0
    assert set(results[1]) == {"step", "quantization", "bad_rows", "samples"}
    both = ["--raw", tmp_path / "unknown.jsonl", tmp_path / "known.parquet"]
    error = _predict(capsys, "--checkpoint", checkpoints, *both, code=65)
    assert "unknown.jsonl has no label, and" in error


def test_a_malformed_row_is_refused_or_gets_no_score(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = _rows(2), _rows(3)
    pq.write_table(pa.table(_rows(2)), tmp_path / "whole.parquet")
    first["price"][7] = None
    second["clicked"][4] = 2
    pq.write_table(pa.table(first), tmp_path / "one.parquet")
    pq.write_table(pa.table(second), tmp_path / "two.parquet")
    raw = ["--checkpoint", checkpoints, "--raw", tmp_path / "one.parquet", tmp_path / "two.parquet"]
    error = _predict(capsys, *raw, code=65)
    assert "one.parquet:8: price is missing" in error
    assert "1 allowed" in _predict(capsys, *raw, "--max_bad_rows", 1, code=65)
    result = _predict(capsys, *raw, "--max_bad_rows", 2, "--out", tmp_path / "scores.npy")
    assert (result["bad_rows"], result["samples"]) == (2, 2 * ROWS - 2)
    scores = np.load(tmp_path / "scores.npy")
    assert np.flatnonzero(np.isnan(scores)).tolist() == [7, ROWS + 4]
    whole = [
        "--checkpoint",
        checkpoints,
        "--raw",
        tmp_path / "whole.parquet",
        "--out",
        tmp_path / "whole.npy",
    ]
    _predict(capsys, *whole)
    good = np.arange(ROWS) != 7
    np.testing.assert_allclose(scores[:ROWS][good], np.load(tmp_path / "whole.npy")[good], rtol=1e-6)
    assert _predict(capsys, *raw, "--max_bad_rows", 10_001, code=64)


def test_a_file_that_does_not_fit_is_refused_with_its_name_and_column(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table(_without(_rows(2), "city")), tmp_path / "rows.parquet")
    error = _predict(capsys, "--checkpoint", checkpoints, "--raw", tmp_path / "rows.parquet", code=65)
    assert "rows.parquet has no column city" in error
    error = _predict(capsys, "--checkpoint", checkpoints, "--raw", tmp_path / "none.parquet", code=65)
    assert "none.parquet does not exist" in error


def test_criteos_lines_are_scored_with_and_without_their_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = good_text(600, seed=1)
    (tmp_path / "rows.tsv").write_bytes(text)
    (tmp_path / "test.txt").write_bytes(b"".join(line[2:] for line in text.splitlines(keepends=True)))
    prepare(str(tmp_path / "rows.tsv"), tmp_path / "data", options=PrepareOptions(min_frequency=8))
    outcome = run_here(tmp_path / "data", tmp_path / "run", **MODEL)
    capsys.readouterr()
    for name in ("rows.tsv", "test.txt"):
        out = ["--out", tmp_path / f"{name}.npy"]
        _predict(capsys, "--checkpoint", outcome.directory / "checkpoints", "--raw", tmp_path / name, *out)
    assert np.unique(np.load(tmp_path / "rows.tsv.npy")).size > 100
    assert (tmp_path / "rows.tsv.npy").read_bytes() == (tmp_path / "test.txt.npy").read_bytes()


def test_a_dataset_without_labels_is_not_trained_on(learned: Outcome, tmp_path: Path) -> None:
    pq.write_table(pa.table(_without(_rows(2), "clicked")), tmp_path / "rows.parquet")
    like = PrepareOptions(like=str(learned.directory.parent / "data"), labels="optional")
    prepare(str(tmp_path / "rows.parquet"), tmp_path / "data", options=like)
    with pytest.raises(DatasetError, match="rows without labels, so it can be scored only"):
        run_here(tmp_path / "data", tmp_path / "run", **MODEL)


SEVERAL = parse(
    {
        "labels": ["clicked", {"name": "bought", "weight": 2, "missing": "skip"}],
        "weight": "importance",
        "dense": ["price"],
        "sparse": SCHEMA.to_json()["sparse"],
    }
)


def _rows_of_several(seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    rows = _rows(seed)
    bought = [None if each == 2 else each for each in random.integers(0, 3, ROWS).tolist()]
    return {**rows, "bought": bought, "importance": (random.integers(0, 4, ROWS) / 2).tolist()}


def test_rows_of_several_labels_and_weights_get_the_scores_and_metrics_of_prepared_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table(_rows_of_several(1)), tmp_path / "learned.parquet")
    prepare(str(tmp_path / "learned.parquet"), tmp_path / "data", schema=SEVERAL)
    run = run_here(tmp_path / "data", tmp_path / "run", **{**MODEL, "model": "mmoe"})
    rows = _rows_of_several(2)
    pq.write_table(pa.table(rows), tmp_path / "new.parquet")
    like = PrepareOptions(like=str(tmp_path / "data"), test_fraction=0.0)
    prepare(str(tmp_path / "new.parquet"), tmp_path / "prepared", options=like)
    capsys.readouterr()
    model = ["--checkpoint", run.directory / "checkpoints", "--out"]
    raw = _predict(capsys, *model, tmp_path / "raw.npy", "--raw", tmp_path / "new.parquet")
    data = ["--dataset_path", tmp_path / "prepared", "--split", "train"]
    prepared = _predict(capsys, *model, tmp_path / "prepared.npy", *data)
    assert (tmp_path / "raw.npy").read_bytes() == (tmp_path / "prepared.npy").read_bytes()
    scores = np.load(tmp_path / "raw.npy")
    assert scores.shape == (ROWS, 2)
    assert len(np.unique(scores[:, 0])) > ROWS / 2
    assert len(np.unique(scores[:, 1])) > ROWS / 2
    assert not np.array_equal(scores[:, 0], scores[:, 1])
    assert {key: raw[key] for key in ("tasks", "auc", "logloss")} == {
        key: prepared[key] for key in ("tasks", "auc", "logloss")
    }
    assert raw["tasks"]["bought"]["samples"] == sum(each is not None for each in rows["bought"])
    assert raw["tasks"]["clicked"]["samples"] == ROWS
    pq.write_table(pa.table(_without(rows, "clicked", "bought", "importance")), tmp_path / "new.parquet")
    unlabelled = _predict(capsys, *model, tmp_path / "again.npy", "--raw", tmp_path / "new.parquet")
    assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "prepared.npy").read_bytes()
    assert set(unlabelled) == {"step", "quantization", "bad_rows", "samples"}
