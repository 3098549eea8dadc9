from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudrec.cli.main import run
from cloudrec.data.check import check
from cloudrec.data.format import manifest
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError
from tests.unit.data.support_rows import good_text

SPARSE = "train/shard-00000.sparse.npy"
DENSE = "train/shard-00000.dense.npy"
LABELS = "train/shard-00000.labels.npy"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "rows.tsv").write_bytes(good_text(200))
    prepare(str(folder / "rows.tsv"), folder / "dataset", options=PrepareOptions(shard_rows=100))
    return folder / "dataset"


@pytest.fixture
def dataset(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "dataset"))


def test_a_complete_dataset_passes_with_a_summary(dataset: Path) -> None:
    report = check(dataset, deep=True)

    files = list(dataset.glob("*/*.npy"))
    assert (report.rows, report.files) == (200, len(files))
    assert report.bytes == sum(f.stat().st_size for f in files)


def _edited(**changes: Any) -> Callable[[Path], None]:
    def edit(dataset: Path) -> None:
        path = dataset / manifest.NAME
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def _cut(dataset: Path) -> None:
    path = dataset / SPARSE
    path.write_bytes(path.read_bytes()[:-1])


def _without_rows(dataset: Path) -> None:
    path = dataset / manifest.NAME
    content = json.loads(path.read_text())
    content["splits"]["train"]["rows"] += 1
    content["digest"] = manifest.digest(content["splits"], content["num_embeddings_per_feature"])
    path.write_text(json.dumps(content))


def _retyped(dataset: Path) -> None:
    path = dataset / SPARSE
    np.save(path, np.load(path).view(np.float32))


def _malformed(dataset: Path) -> None:
    path = dataset / manifest.NAME
    content = json.loads(path.read_text())
    content["splits"]["train"]["shards"] = [{"name": "x"}]
    content["digest"] = manifest.digest(content["splits"], content["num_embeddings_per_feature"])
    path.write_text(json.dumps(content))


def _with_text_for_rows(dataset: Path) -> None:
    path = dataset / manifest.NAME
    content = json.loads(path.read_text())
    content["num_embeddings_per_feature"]["C1"] = "five"
    content["schema_version"] = 1  # with an encoding, another check would notice it first
    del content["encoding"]
    content["digest"] = manifest.digest(content["splits"], content["num_embeddings_per_feature"])
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_with_text_for_rows, "'five' is no whole number"),
        (lambda d: (d / manifest.NAME).unlink(), "is no prepared dataset"),
        (lambda d: (d / manifest.NAME).write_text("{"), "is not JSON"),
        (lambda d: (d / manifest.NAME).write_bytes(b"\xff"), "is not JSON"),
        (lambda d: (d / manifest.NAME).write_text("[]"), "does not describe a prepared dataset"),
        (_edited(format="parquet"), "does not describe a prepared dataset"),
        (_edited(schema_version=3), "schema version 3; this cloudrec reads versions 1 and 2"),
        (_edited(num_embeddings_per_feature={"C1": 5}), "its digest does not fit"),
        (_edited(splits=None), "its digest does not fit"),
        (_malformed, "is malformed"),
        (_without_rows, "the shards of train hold"),
        (lambda d: (d / SPARSE).unlink(), "is missing"),
        (_cut, "bytes, not"),
        (_retyped, "float32"),
    ],
)
def test_damage_is_detected_without_reading_the_rows(
    dataset: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(dataset)

    with pytest.raises(DataError, match=message) as caught:
        check(dataset, deep=False)

    assert caught.value.remedy


@pytest.mark.parametrize(
    ("file", "index", "value", "message"),
    [
        (SPARSE, (3, 4), -1, "an id of C4 is outside 0..13"),
        (SPARSE, (0, 0), 10**6, "an id of C1 is outside"),
        (DENSE, (0, 0), np.nan, "not finite"),
        (LABELS, 7, 2, "a label other than 0 and 1"),
    ],
)
def test_a_changed_value_is_detected_by_a_deep_check(
    dataset: Path, file: str, index: Any, value: float, message: str
) -> None:
    array = np.load(dataset / file)
    array[index] = value
    np.save(dataset / file, array)

    check(dataset, deep=False)
    with pytest.raises(DataError, match="is damaged: its crc32 is"):
        check(dataset, deep=True)

    _resign(dataset, file)
    with pytest.raises(DataError, match=message):
        check(dataset, deep=True)


def _resign(dataset: Path, file: str) -> None:
    """Make dataset.json agree with the file, as a faulty writer would."""
    import zlib  # noqa: PLC0415 - only here

    path = dataset / manifest.NAME
    content = json.loads(path.read_text())
    shard = content["splits"]["train"]["shards"][0]
    shard["files"][file.split(".")[-2]]["crc32"] = f"{zlib.crc32((dataset / file).read_bytes()):08x}"
    content["digest"] = manifest.digest(content["splits"], content["num_embeddings_per_feature"])
    path.write_text(json.dumps(content))


def test_a_path_that_no_file_system_can_have_is_an_error_of_the_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in ("a" * 5000, "missing"):
        assert run(["data", "check", path]) == 2
    said = capsys.readouterr().err
    assert "File name too long" in said
    assert "missing does not exist" in said
