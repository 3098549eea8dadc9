"""The trainer reads what `cloudrec data prepare` writes."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from trainer.base.errors import DatasetError
from trainer.data.formats.prepared import PreparedDataset
from trainer.data.stream import BatchStream

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from trainer.data.formats.prepared import Split

ROWS, TEST_ROWS = 700, 150
NUM_DENSE, NUM_SPARSE = 13, 26
DENSE, SPARSE = slice(1, 1 + NUM_DENSE), slice(1 + NUM_DENSE, None)  # of a row's fields


def _line(source: random.Random) -> str:
    """One row of Criteo TSV: some fields empty, some integers negative, few and many categories."""
    integers = [source.choice(["", "-3", "0", str(source.randrange(10_000))]) for _ in range(NUM_DENSE)]
    categories = [
        source.choice(["", f"{source.randrange(4 + 10 * index):08x}"]) for index in range(NUM_SPARSE)
    ]
    return "\t".join([str(source.randrange(2)), *integers, *categories])


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[str]]]]:
    """A folder of TSV files, and their fields."""
    folder, source = tmp_path_factory.mktemp("tsv"), random.Random(5)  # noqa: S311 - test data
    rows = {"train": [_line(source) for _ in range(ROWS)], "test": [_line(source) for _ in range(TEST_ROWS)]}
    for split, texts in rows.items():
        (folder / split).mkdir()
        (folder / split / "part-000.tsv").write_text("".join(f"{text}\n" for text in texts))
    return folder, {split: [text.split("\t") for text in texts] for split, texts in rows.items()}


OPTIONS = {
    "vocabulary": PrepareOptions(encoding="vocabulary", min_frequency=1, shard_rows=200),
    "hash": PrepareOptions(encoding="hash", hash_buckets=1 << 20, shard_rows=200),
}


@pytest.mark.parametrize("encoding", OPTIONS)
def test_the_trainer_reads_the_labels_numbers_and_categories_that_were_prepared(
    lines: tuple[Path, dict[str, list[list[str]]]], tmp_path: Path, encoding: str
) -> None:
    folder, fields = lines
    report = prepare(str(folder), tmp_path / "out", options=OPTIONS[encoding])
    dataset = PreparedDataset.open(str(tmp_path / "out"), verify=True)
    assert (dataset.digest, dataset.num_embeddings) == (report.digest, report.num_embeddings_per_feature)
    assert (len(dataset.dense_features), len(dataset.sparse_features)) == (NUM_DENSE, NUM_SPARSE)
    for split in (dataset.train, dataset.test):
        labels, dense, ids = _read(split)
        rows = fields[split.name]
        assert labels.tolist() == [int(row[0]) for row in rows]
        numbers = [[math.log1p(max(int(field or 0), 0)) for field in row[DENSE]] for row in rows]
        np.testing.assert_allclose(dense, numbers, rtol=1e-6)
        known_only = split is dataset.train or encoding == "hash"  # held-out rows may have unknown categories
        for feature, categories in enumerate(zip(*(row[SPARSE] for row in rows), strict=True)):
            pairs = set(zip(ids[feature].tolist(), categories, strict=True))
            assert (0, "") in pairs, "0 means a missing category"
            if known_only:
                assert len({identity for identity, _ in pairs}) == len(pairs) == len(set(categories))


def _read(split: Split) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Labels [rows], dense values [rows, D] and ids [F, rows], put back in row order."""
    batches = list(BatchStream(split, batch_size=64, rank=0, world_size=1, seed=1, epoch=0))
    order = np.argsort(np.concatenate([batch.sample_ids.numpy() for batch in batches]))
    assert len(order) == split.rows
    return (
        np.concatenate([batch.labels.numpy() for batch in batches])[order],
        np.concatenate([batch.dense.numpy() for batch in batches])[order],
        np.concatenate([batch.sparse.numpy() for batch in batches], axis=1)[:, order],
    )


def test_a_dataset_changed_after_preparation_is_refused(
    lines: tuple[Path, dict[str, list[list[str]]]], tmp_path: Path
) -> None:
    prepare(str(lines[0]), tmp_path / "out", options=OPTIONS["vocabulary"])
    document = json.loads((tmp_path / "out" / "dataset.json").read_text())
    path = tmp_path / "out" / document["splits"]["test"]["shards"][0]["files"]["sparse"]["path"]
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="crc32"):
        PreparedDataset.open(str(tmp_path / "out"), verify=True)
