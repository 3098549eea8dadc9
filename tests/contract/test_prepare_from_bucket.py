"""`data prepare` reads tables from a bucket, in ranges, and gives the bytes of files on this machine."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from cloudrec.cli.main import run
from cloudrec.data import stored_files
from tests.contract.kubernetes.support_store import bucket

ROWS = 3_000
SCHEMA = {"label": "clicked", "dense": ["price"], "sparse": ["city", {"name": "zip", "encoding": "hash"}]}


def _table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "clicked": random.integers(0, 2, ROWS),
            "price": random.integers(0, 99, ROWS) / 4,
            "city": [f"city {each}" for each in random.integers(0, 50, ROWS)],
            "zip": [f"{each:05d}" for each in random.integers(0, 900, ROWS)],
        }
    )


def _write(folder: Path) -> None:
    folder.mkdir()
    parquet.write_table(_table(1), folder / "a.parquet", row_group_size=1_000)
    feather.write_feather(_table(2), str(folder / "b.feather"), compression="lz4")
    with gzip.open(folder / "c.csv.gz", "wb") as file:
        csv.write_csv(_table(3), file)
    lines = "".join(f"{json.dumps(row)}\n" for row in _table(4).to_pylist())
    (folder / "d.jsonl.zst").write_bytes(pa.compress(lines.encode(), "zstd", asbytes=True))


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of tables in all formats, which is at s3://bucket/clicks, too."""
    _write(tmp_path / "clicks")
    (tmp_path / "features.yaml").write_text(json.dumps(SCHEMA))
    monkeypatch.chdir(tmp_path)
    with bucket(tmp_path) as (files, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for name in [each for each in os.environ if each.startswith("AWS_PROFILE")]:
            monkeypatch.delenv(name)
        files.put(str(tmp_path / "clicks"), "bucket/", recursive=True)
        files.put(str(tmp_path / "clicks" / "a.parquet"), "bucket/split/train/x.parquet")
        files.put(str(tmp_path / "clicks" / "b.feather"), "bucket/split/test/x.feather")
        yield tmp_path / "clicks"


def _prepared(source: str, name: str) -> dict[str, Any]:
    assert run(["data", "prepare", source, name, "--features", "features.yaml"]) == 0
    content: dict[str, Any] = json.loads(Path(name, "dataset.json").read_text())
    return content


@pytest.mark.parametrize(
    "source",
    ["clicks", "clicks/a.parquet", "clicks/b.feather", "clicks/c.csv.gz", "clicks/d.jsonl.zst", "clicks/*.*"],
)
def test_a_bucket_gives_the_same_dataset_as_a_folder(
    clicks: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(stored_files, "_RANGE_BYTES", 5_000)  # many ranges of each object
    stored, local = _prepared(f"s3://bucket/{source}", "stored"), _prepared(source, "local")
    assert stored["digest"] == local["digest"]
    assert stored["encoding"] == local["encoding"]
    assert stored["rows"] == local["rows"] > 0
    assert stored["sources"][0]["path"].startswith("s3://bucket/clicks/")
    assert clicks.exists()


def test_train_and_test_below_a_prefix_are_the_splits(clicks: Path) -> None:
    content = _prepared("s3://bucket/split", "stored")
    assert [content["splits"][name]["rows"] for name in ("train", "test")] == [ROWS, ROWS]
    assert clicks.exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("s3://bucket/none", "s3://bucket/none holds no object"),
        ("s3://bucket/clicks/*.orc", "no object matches s3://bucket/clicks/*.orc"),
        ("s3://", "names no place"),
        ("ftp://bucket/x", "the scheme 'ftp' is not known"),
    ],
)
def test_a_source_that_is_not_there_is_an_error(
    clicks: Path, capsys: pytest.CaptureFixture[str], source: str, message: str
) -> None:
    assert run(["data", "prepare", source, "out", "--features", "features.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert clicks.exists()


def test_what_reads_no_bucket_is_refused(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "prepare", "s3://bucket/clicks/a.tsv", "out"]) == 2
    assert "Criteo's TSV files are read from this machine's disk" in capsys.readouterr().err
    cluster = ["--features", "features.yaml", "--on", "ray://127.0.0.1:1"]
    assert run(["data", "prepare", "s3://bucket/clicks", "out", *cluster]) == 2
    assert "but s3://bucket/clicks is in a bucket" in capsys.readouterr().err
    assert clicks.exists()
