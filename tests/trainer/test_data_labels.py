"""The trainer reads several labels and the samples' weights, as `data prepare` writes them."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_dataset import write_manifest
from trainer.base.errors import DatasetError
from trainer.data.checks import BatchChecks
from trainer.data.formats.prepared import PreparedDataset, PreparedSource
from trainer.models.inputs import InputMaker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainer.data.batch import Batch

ROWS = 1_000
LABELS = ["clicked", {"name": "bought", "missing": "skip"}]
SPARSE = [{"name": "city", "min_frequency": 1}, {"name": "tags", "kind": "multi_hot", "min_frequency": 1}]
FIRST = "train/shard-00000"


def _columns() -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {
        "clicked": random.integers(0, 2, ROWS),
        "bought": pa.array(random.integers(0, 2, ROWS), mask=random.random(ROWS) < 0.4),
        "importance": random.random(ROWS).astype(np.float32),
        "number": np.arange(ROWS),
        "city": [f"c{each}" for each in random.integers(0, 9, ROWS)],
        "tags": [[f"t{each}"] * (each % 3) for each in random.integers(0, 9, ROWS)],
    }


def _prepare(folder: Path, schema: dict[str, Any]) -> Path:
    pq.write_table(pa.table(_columns()), folder / "rows.parquet")
    options = PrepareOptions(test_fraction=0.0, shard_rows=300)
    out = folder / "data"
    prepare(str(folder / "rows.parquet"), out, options=options, schema=parse(schema))
    return out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    schema = {"labels": LABELS, "weight": "importance", "dense": ["number"], "sparse": SPARSE}
    return _prepare(tmp_path, schema)


def _batches(source: PreparedSource, *, ranks: int, shuffle: bool) -> list[Batch]:
    return [
        batch
        for rank in range(ranks)
        for batch in source.batches(
            "train", batch_size=64, rank=rank, world_size=ranks, seed=5, shuffle=shuffle
        )
    ]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_sample_has_its_own_labels_and_weight(data: Path, *, shuffle: bool, ranks: int) -> None:
    columns, seen = _columns(), 0
    truth = np.stack(
        [columns["clicked"], columns["bought"].fill_null(-1).to_numpy(zero_copy_only=False)], axis=1
    )
    for batch in _batches(PreparedSource(str(data)), ranks=ranks, shuffle=shuffle):
        rows = batch.dense[:, 0].long()
        assert batch.labels.dtype == torch.float32
        np.testing.assert_array_equal(batch.labels.numpy(), truth[rows])
        assert batch.weights is not None
        np.testing.assert_array_equal(batch.weights.numpy(), columns["importance"][rows])
        made = InputMaker(["city", "tags"], ranks, equal=True)(batch)
        assert made.weights is not None
        assert len(made.labels) == len(made.weights) == len(made.dense)
        seen += len(rows)
    assert seen == ROWS


def test_one_label_with_weights_stays_one_dimensional(tmp_path: Path) -> None:
    schema = {"label": "clicked", "weight": "importance", "dense": ["number"], "sparse": SPARSE}
    columns, source = _columns(), PreparedSource(str(_prepare(tmp_path, schema)))
    source.verify(part=0, parts=1)
    for batch in _batches(source, ranks=1, shuffle=True):
        rows = batch.dense[:, 0].long()
        np.testing.assert_array_equal(batch.labels.numpy(), columns["clicked"][rows])
        assert batch.weights is not None
        np.testing.assert_array_equal(batch.weights.numpy(), columns["importance"][rows])


def _change(data: Path, kind: str, index: Any, value: float) -> None:
    """Change a value, and make dataset.json agree with the file, as a faulty writer would."""
    path = data / f"{FIRST}.{kind}.npy"
    array = np.load(path)
    array[index] = value
    np.save(path, array)
    document = json.loads((data / "dataset.json").read_text())
    entry = document["splits"]["train"]["shards"][0]["files"][kind]
    entry["crc32"] = f"{zlib.crc32(path.read_bytes()):08x}"
    write_manifest(data, document)


DAMAGE: list[tuple[str, Any, float, str, str]] = [
    ("labels", (0, 5), 255, "holds the label 255; labels are 0 or 1", "sample 5 has the label -1 of clicked"),
    ("labels", (1, 5), 7, "holds the label 7; labels are 0 or 1", "sample 5 has the label 7 of bought"),
    (
        "weights",
        5,
        -2.0,
        "holds a weight that is no finite number",
        "sample 5 has the weight -2.0; weights must",
    ),
    ("weights", 5, np.nan, "holds a weight that is no finite number", "sample 5 has the weight nan"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_values_out_of_range_are_named(data: Path, damage: tuple[str, Any, float, str, str]) -> None:
    kind, index, value, verified, checked = damage
    PreparedDataset.open(str(data), verify=True)
    _change(data, kind, index, value)
    with pytest.raises(DatasetError, match=verified):
        PreparedDataset.open(str(data), verify=True)
    source = PreparedSource(str(data))
    checks = BatchChecks(source, source.num_embeddings, hash_overflow=False)
    with pytest.raises(DatasetError, match=checked):
        list(checks.stream(_batches(source, ranks=1, shuffle=False)))


def _claim_another_number(document: dict[str, Any]) -> None:
    document["splits"]["train"]["positives"][1] += 1


def _claim_one_number(document: dict[str, Any]) -> None:
    document["splits"]["train"]["positives"] = 5


def _lose_weights(document: dict[str, Any]) -> None:
    del document["splits"]["train"]["shards"][0]["files"]["weights"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_claim_another_number, "claims .* positive labels, its shards hold"),
        (_claim_one_number, "positives is 5, not a list of 2 numbers"),
        (_lose_weights, "the field 'weights' is missing"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    data: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = json.loads((data / "dataset.json").read_text())
    change(document)
    write_manifest(data, document)
    with pytest.raises(DatasetError, match=message):
        PreparedDataset.open(str(data), verify=True)
