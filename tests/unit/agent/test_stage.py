"""Staging: a dataset is downloaded to a node's disk once and verified."""

from __future__ import annotations

import fcntl
import json
import shutil
import zlib
from pathlib import Path

import pytest

from cloudrec.agent.checks import probe
from cloudrec.agent.upload.staging import stage
from cloudrec.data.check import check
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError, PreflightError
from cloudrec.launchers.base.results_store import open_place
from tests.trainer.support_dataset import make_version_1, write_dataset, write_manifest
from tests.unit.data.support_rows import good_text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket" / "data"
    write_dataset(folder, train_rows=500, test_rows=100, num_dense=2, num_sparse=2)
    return folder


def _stage(source: Path, tmp_path: Path, said: list[str] | None = None) -> Path:
    return stage(open_place(f"file://{source}"), tmp_path / "node", say=(said or []).append)


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_every_file_is_fetched_once(source: Path, tmp_path: Path) -> None:
    said: list[str] = []
    target = stage(open_place(f"file://{source}"), tmp_path / "node", say=said.append)
    assert _files(target) == _files(source)
    assert said[0].startswith(f"staging file://{source}: {len(_files(source)) - 1} files")
    said.clear()
    assert stage(open_place(f"file://{source}"), tmp_path / "node", say=said.append) == target
    assert said == []


def test_an_interrupted_download_fetches_only_missing_files(source: Path, tmp_path: Path) -> None:
    target = _stage(source, tmp_path)
    lost = target / "train/shard-00001.dense.npy"
    half = target / "train/shard-00000.sparse.npy"
    lost.unlink()
    half.write_bytes(half.read_bytes()[:100])
    said: list[str] = []
    stage(open_place(f"file://{source}"), tmp_path / "node", say=said.append)
    assert ": 2 files" in said[0]
    assert _files(target) == _files(source)


def test_a_changed_file_is_refused_and_dataset_json_is_not_written(source: Path, tmp_path: Path) -> None:
    path = source / "train/shard-00001.dense.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=f"shard-00001.dense.npy: its crc32 is {zlib.crc32(data):08x}; dataset"
    ):
        _stage(source, tmp_path)
    assert not list((tmp_path / "node").glob("*/dataset.json"))
    assert not list((tmp_path / "node").glob("*/train/shard-00001.dense.npy"))


def test_a_missing_file_is_named(source: Path, tmp_path: Path) -> None:
    (source / "test/shard-00000.labels.npy").unlink()
    with pytest.raises(DataError, match=r"test/shard-00000.labels.npy: is not there"):
        _stage(source, tmp_path)


def test_a_disk_that_is_too_small_is_reported_before_the_download(source: Path, tmp_path: Path) -> None:
    document = json.loads((source / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["files"]["dense"]["bytes"] = 2**60
    write_manifest(source, document)
    with pytest.raises(PreflightError, match=r"has 1152921504\.\d\d GB to download, and .* GB free"):
        _stage(source, tmp_path)


@pytest.mark.parametrize(
    ("locked", "fits_disk", "kept"), [(False, True, False), (True, True, True), (False, False, True)]
)
def test_an_earlier_dataset_is_removed_for_one_that_needs_its_room(
    source: Path, tmp_path: Path, *, locked: bool, fits_disk: bool, kept: bool
) -> None:
    earlier = tmp_path / "bucket" / "earlier"
    write_dataset(earlier, train_rows=500, test_rows=100, num_dense=2, num_sparse=2)
    staged = _stage(earlier, tmp_path)
    usage = shutil.disk_usage(tmp_path)
    size = (usage.free + usage.total) // 2 if fits_disk else 2 * usage.total
    document = json.loads((source / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["files"]["dense"]["bytes"] = int(size / 1.05)
    write_manifest(source, document)
    with (staged / ".lock").open() as lock:
        if locked:
            fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PreflightError, match="GB to download"):
            _stage(source, tmp_path)
    assert staged.exists() == kept


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "dataset.json: "), ("[]", "dataset.json: "), ('{"splits": {}}', "the field 'num_embeddings")],
)
def test_a_damaged_dataset_json_is_bad_data(source: Path, tmp_path: Path, text: str, words: str) -> None:
    (source / "dataset.json").write_text(text)
    with pytest.raises(DataError, match=words):
        _stage(source, tmp_path)


def test_a_file_outside_the_folder_is_refused(source: Path, tmp_path: Path) -> None:
    document = json.loads((source / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["files"]["dense"]["path"] = "../../etc/passwd"
    write_manifest(source, document)
    with pytest.raises(DataError, match="lies outside the dataset's folder"):
        _stage(source, tmp_path)


def test_data_in_another_format_is_staged_with_all_its_files(tmp_path: Path) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    (source / "day_0").write_bytes(b"0\t1\n")
    (source / "day_1").write_bytes(b"1\t2\n")
    assert _files(_stage(source, tmp_path)) == _files(source)


def test_a_probe_reports_what_a_pod_can_reach(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    assert probe.main(["--dataset", f"file://{source}", "--results", f"file://{results}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dataset"]["ok"], told["results"]["ok"]) == (True, True)
    assert told["dataset"]["bytes"] == sum(len(data) for data in _files(source).values()) - len(
        (source / "dataset.json").read_bytes()
    )
    assert _files(results) == {}


def test_a_failed_probe_has_the_exit_code_and_a_message(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main(["--dataset", f"file://{tmp_path}/nothing"]) == 65
    assert "error: " in capsys.readouterr().out
    (source / "train/shard-00000.labels.npy").write_bytes(b"no npy")
    assert probe.main(["--dataset", f"file://{source}"]) == 65
    assert "train/shard-00000.labels.npy: is no npy file" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert probe.main(["--results", f"file://{tmp_path}/file"]) == 69
    assert "error: " in capsys.readouterr().out.splitlines()[-1]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A dataset with a vocabulary."""
    (tmp_path / "rows.tsv").write_bytes(good_text(200))
    prepare(str(tmp_path / "rows.tsv"), tmp_path / "data")
    return tmp_path / "data"


def test_a_vocabulary_is_staged_with_its_dataset(prepared: Path, tmp_path: Path) -> None:
    target = _stage(prepared, tmp_path)
    assert _files(target) == _files(prepared)
    check(target, deep=True)


def test_a_changed_vocabulary_is_refused(prepared: Path, tmp_path: Path) -> None:
    path = prepared / "vocabulary/C2.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"vocabulary/C2.npy: its crc32 is"):
        _stage(prepared, tmp_path)
    assert not list((tmp_path / "node").glob("*/dataset.json"))


def test_a_changed_encoding_is_refused(prepared: Path, tmp_path: Path) -> None:
    document = json.loads((prepared / "dataset.json").read_text())
    document["encoding"]["mapping"]["tables"][0]["sha256"] = "0" * 64
    (prepared / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="but its contents give"):
        _stage(prepared, tmp_path)


def test_a_dataset_of_schema_version_1_is_staged(prepared: Path, tmp_path: Path) -> None:
    make_version_1(prepared)
    assert check(_stage(prepared, tmp_path), deep=True).encoding_digest is None
