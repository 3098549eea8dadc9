"""The bytes of prepared tables stay the same: a change of how they are computed must not change them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.format.encoding import digest_of
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.unit.data.test_features import SCHEMA, made

GOLDEN = {  # options: digests of the dataset and of the encoding
    "split": (
        "e3f357309d9eb173d00b0bf16a83498f24ec61795b8303244818605f988efc6d",
        "79de15cf8868f3cb7de0989b345395bfb554c97be3079e5d533033df695c888e",
    ),
    "whole": (
        "11564df7a5f90bf55c251e8363e261eb4e06a10890641305b01202fef31aefd5",
        "120fec7426b6094dd298a6662bd694c7c7a037a4f0da39847826f0c7f8bbbb24",
    ),
}
FIRST = {  # as the first version computed them, with another hash
    "split": (
        "06e5dd5b5283e2369ab9716293b86cc572c2164d32a17c06605ab25ec9c61fa4",
        "f55ec0febb84b758b10c21f69099572007ecd4a6efc699ae46f354ae70050e5e",
    ),
    "whole": (
        "2dc9c186a59bbf55092156ca0c5a25d5a9239f773cca79dcabb2adeddbdb1fa5",
        "a664308852b1b9d5d83286f7a89602d5c15d97086b1e83b37e3559b096f96266",
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
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


def digests(source: Path, out: Path, **options: Any) -> tuple[str, str]:
    """Prepare the files; return the digests of the dataset and of the encoding."""
    chosen = PrepareOptions(**options)
    prepare(str(source), out, options=chosen, schema=None if chosen.like else parse(SCHEMA))
    content = json.loads((out / "dataset.json").read_text())
    assert (content["bad_rows"], content["rows"]) == (50, 152_950)
    return content["digest"], content["encoding"]["digest"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_stay_the_same(source: Path, tmp_path: Path, name: str) -> None:
    for threads in (1, 3):
        found = digests(source, tmp_path / "out", **OPTIONS[name], threads=threads, overwrite=True)
        assert found == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_like_a_dataset_of_the_first_version_gives_its_bytes(source: Path, tmp_path: Path, name: str) -> None:
    digests(source, tmp_path / "new", **OPTIONS[name])
    file = tmp_path / "new" / "dataset.json"
    content = json.loads(file.read_text())
    encoding = content["encoding"]
    del encoding["mapping"]["hash"]  # which the first version did not write
    encoding["digest"] = digest_of(encoding["mapping"])
    file.write_text(json.dumps(content))
    assert digests(source, tmp_path / "out", **OPTIONS[name], like=str(tmp_path / "new")) == FIRST[name]
