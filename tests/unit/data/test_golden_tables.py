"""The bytes of prepared tables stay the same: a change of how they are computed must not change them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.unit.data.test_features import SCHEMA, made

GOLDEN = {  # options: digests of the dataset and of the encoding, as the first version computed them
    "split": (
        "06e5dd5b5283e2369ab9716293b86cc572c2164d32a17c06605ab25ec9c61fa4",
        "f55ec0febb84b758b10c21f69099572007ecd4a6efc699ae46f354ae70050e5e",
    ),
    "whole": (
        "2dc9c186a59bbf55092156ca0c5a25d5a9239f773cca79dcabb2adeddbdb1fa5",
        "a664308852b1b9d5d83286f7a89602d5c15d97086b1e83b37e3559b096f96266",
    ),
}
OPTIONS = {
    "split": {"shard_rows": 50_000, "seed": 3, "max_bad_rows": 60},
    "whole": {"test_fraction": 0.0, "max_bad_rows": 60},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of several batches, with a bad row in each repetition of the first."""
    folder = tmp_path_factory.mktemp("golden")
    rows = made()
    rows["price"][77] = float("inf")
    pq.write_table(pa.concat_tables([pa.table(rows)] * 50), folder / "a.parquet", row_group_size=40_000)
    pq.write_table(pa.table(made(seed=1)), folder / "b.parquet")
    return folder


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_those_of_the_first_version(source: Path, tmp_path: Path, name: str) -> None:
    for threads in (1, 3):
        options = PrepareOptions(**OPTIONS[name], threads=threads, overwrite=True)  # type: ignore[arg-type]
        prepare(str(source), tmp_path / "out", options=options, schema=parse(SCHEMA))
        content = json.loads((tmp_path / "out" / "dataset.json").read_text())
        assert (content["bad_rows"], content["rows"]) == (50, 152_950)
        assert (content["digest"], content["encoding"]["digest"]) == GOLDEN[name]
