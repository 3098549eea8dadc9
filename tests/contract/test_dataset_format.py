"""The prepared dataset, read only by its documented format: JSON, .npy files and sha256."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare

LINE = "\t".join(["1", *(str(n) for n in range(-1, 12)), *(f"{n:08x}" for n in range(26))]) + "\n"
EMPTY = "0" + "\t" * 39 + "\n"


@pytest.fixture(scope="module", params=["vocabulary", "hash"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("format")
    for split, text in (("train", LINE * 5 + EMPTY * 2), ("test", EMPTY + LINE)):
        (folder / split).mkdir()
        (folder / split / "rows.tsv").write_text(text)
    options = PrepareOptions(encoding=request.param, hash_buckets=50, shard_rows=3)
    prepare(str(folder), folder / "dataset", options=options)
    return folder / "dataset"


def _content(dataset: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dataset / "dataset.json").read_text())
    return content


def test_dataset_json_has_the_documented_fields(dataset: Path) -> None:
    content = _content(dataset)

    assert content["format"] == "cloudrec-dataset"
    assert content["schema_version"] == 2
    assert content["dense_features"] == [f"I{n}" for n in range(1, 14)]
    assert content["sparse_features"] == [f"C{n}" for n in range(1, 27)]
    assert content["dense_transform"] == "log1p"
    assert (content["rows"], content["bad_rows"]) == (9, 0)
    assert [(Path(s["path"]).parent.name, s["rows"], s["bad_rows"]) for s in content["sources"]] == [
        ("train", 7, 0),
        ("test", 2, 0),
    ]
    assert set(content) == {
        *("format", "schema_version", "created", "cloudrec_version", "dense_features", "sparse_features"),
        *("num_embeddings_per_feature", "encoding", "dense_transform", "rows", "bad_rows", "sources"),
        *("splits", "digest"),
    }


def test_the_digest_covers_splits_and_table_sizes(dataset: Path) -> None:
    content = _content(dataset)
    covered = {k: content[k] for k in ("splits", "num_embeddings_per_feature")}
    canonical = json.dumps(covered, sort_keys=True, separators=(",", ":"))

    assert content["digest"] == hashlib.sha256(canonical.encode()).hexdigest()


def test_the_encoding_and_its_digest_cover_everything_that_determines_an_id(dataset: Path) -> None:
    encoding = _content(dataset)["encoding"]
    mapping, files = encoding["mapping"], encoding["files"]
    canonical = json.dumps(mapping, sort_keys=True, separators=(",", ":"))
    assert encoding["digest"] == hashlib.sha256(canonical.encode()).hexdigest()
    assert [table["feature"] for table in mapping["tables"]] == [f"C{n}" for n in range(1, 27)]
    if mapping["kind"] == "hash":
        assert mapping == {"kind": "hash", "version": 1, "missing_id": 0, "tables": mapping["tables"]}
        assert all(set(table) == {"feature", "rows"} and table["rows"] == 50 for table in mapping["tables"])
        assert set(encoding) == {"digest", "mapping", "files"}
        assert files == {}
        assert not (dataset / "vocabulary").exists()
    else:
        reserved = {"missing_id": 0, "unknown_id": 1, "first_id": 2}
        assert mapping == {"kind": "vocabulary", "version": 1, **reserved, "tables": mapping["tables"]}
        assert set(encoding) == {"digest", "mapping", "files", "min_frequency"}
        assert encoding["min_frequency"] == 3


def test_a_vocabulary_file_lists_the_values_in_id_order(dataset: Path) -> None:
    encoding = _content(dataset)["encoding"]
    if encoding["mapping"]["kind"] == "hash":
        return
    for number, table in enumerate(encoding["mapping"]["tables"]):
        file = encoding["files"][table["feature"]]
        assert file["path"] == f"vocabulary/{table['feature']}.npy"
        data = (dataset / file["path"]).read_bytes()
        assert (file["bytes"], file["crc32"]) == (len(data), f"{zlib.crc32(data):08x}")
        assert table["sha256"] == hashlib.sha256(data).hexdigest()
        values = np.load(dataset / file["path"])
        assert (values.dtype.str, values.tolist()) == ("<u4", [number])  # of LINE, for the id 2
        assert table["rows"] == 2 + len(values)


def test_shards_match_their_manifest(dataset: Path) -> None:
    splits = _content(dataset)["splits"]

    assert [s["rows"] for s in splits["train"]["shards"]] == [3, 3, 1]
    assert [s["name"] for s in splits["train"]["shards"]] == [f"train/shard-0000{n}" for n in range(3)]
    assert (splits["train"]["rows"], splits["train"]["positives"]) == (7, 5)
    assert (splits["test"]["rows"], splits["test"]["positives"]) == (2, 1)
    for split in splits.values():
        for shard in split["shards"]:
            n = shard["rows"]
            layout = {"labels": ("uint8", (n,)), "dense": ("float32", (n, 13)), "sparse": ("int32", (26, n))}
            assert set(shard["files"]) == set(layout)
            for kind, (dtype, shape) in layout.items():
                file = shard["files"][kind]
                assert file["path"] == f"{shard['name']}.{kind}.npy"
                data = (dataset / file["path"]).read_bytes()
                assert data[:8] == b"\x93NUMPY\x01\x00"
                assert (file["bytes"], file["crc32"]) == (len(data), f"{zlib.crc32(data):08x}")
                array = np.load(dataset / file["path"], mmap_mode="r")
                assert (array.dtype, array.shape, array.flags.c_contiguous) == (dtype, shape, True)


def test_values_are_transformed_and_ids_are_within_table_sizes(dataset: Path) -> None:
    content = _content(dataset)
    dense = np.load(dataset / "test" / "shard-00000.dense.npy")
    sparse = np.load(dataset / "test" / "shard-00000.sparse.npy")
    limits = np.array([content["num_embeddings_per_feature"][f"C{n}"] for n in range(1, 27)])

    assert np.load(dataset / "test" / "shard-00000.labels.npy").tolist() == [0, 1]
    np.testing.assert_allclose(dense, np.log1p([[0] * 13, [0, *range(12)]]), rtol=1e-6)
    assert np.all(sparse[:, 0] == 0)
    assert np.all((sparse[:, 1] > 0) & (sparse[:, 1] < limits))
    if content["encoding"]["mapping"]["kind"] == "vocabulary":
        assert np.all(sparse[:, 1] == 2)
        assert np.all(limits == 3)
