"""Every reader of a dataset refuses a dataset.json that names files outside its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.agent.upload.staging import stage
from cloudrec.cli.main import run
from cloudrec.errors import DataError
from cloudrec.launchers.base.results_store import open_place
from tests.contract.kubernetes.support_store import bucket
from tests.trainer.support_dataset import write_dataset, write_manifest
from trainer.base.errors import DatasetError as TrainerDataError
from trainer.data.formats import manifest

FILE = "train/shard-00000.dense.npy"


def names(secret: Path) -> list[str]:
    return [
        "../secret.npy",
        "train/../../secret.npy",
        str(secret),
        f"/{secret}",
        "..",
        ".",
        "",
        "train//../../secret.npy",
        "./../secret.npy",
        "train/x\0.npy",
        "train/x\n.npy",
        "..\\secret.npy",
        "train/" + "x" * 300,
    ]


@pytest.fixture
def hostile(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A dataset with one renamed file, which exists and matches its manifest entry."""
    folder = tmp_path / "work" / "dataset"
    write_dataset(folder, train_rows=40, test_rows=10, num_dense=13, num_sparse=26)
    secret = tmp_path / "work" / "secret.npy"
    secret.write_bytes((folder / FILE).read_bytes())
    document: dict[str, Any] = json.loads((folder / "dataset.json").read_text())
    entry = document["splits"]["train"]["shards"][0]["files"]["dense"]
    assert entry["path"] == FILE
    entry["path"] = names(secret)[request.param]
    write_manifest(folder, document)
    return folder


every_name = pytest.mark.parametrize("hostile", range(len(names(Path("/x")))), indirect=True)


@every_name
@pytest.mark.parametrize("command", ["check", "check --deep", "push"])
def test_the_command_line_refuses_a_path_outside_the_dataset(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    target = [str(tmp_path / "work" / "there" / "copy")] if command == "push" else []
    word, *options = command.split()
    assert run(["data", word, str(hostile), *target, *options]) == 2
    assert "names a file outside the dataset" in capsys.readouterr().err
    assert not (tmp_path / "work" / "there").exists()


@every_name
def test_a_pod_stages_no_path_outside_the_dataset(hostile: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="outside the dataset's folder"):
        stage(open_place(f"file://{hostile}"), tmp_path / "node", say=print)
    assert [path.name for path in (tmp_path / "node").rglob("*") if path.is_file()] == [".lock"]


@every_name
def test_the_trainer_refuses_a_path_outside_the_dataset(hostile: Path) -> None:
    with pytest.raises(TrainerDataError, match="outside the dataset's folder"):
        manifest.read(hostile)


def test_a_bucket_with_keys_that_leave_the_folder_is_not_staged(tmp_path: Path) -> None:
    with bucket(tmp_path) as (files, environment):
        for key in ("data/day_0", "data/../../escaped"):
            files.call_s3("put_object", Bucket="bucket", Key=key, Body=b"0\t1\n")
        with pytest.raises(DataError, match="outside the dataset's folder"):
            stage(open_place("s3://bucket/data", environment), tmp_path / "node", say=print)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {".lock", "log"}


@pytest.mark.parametrize("name", ["../up", "..", "/x", "a/../../x", "a\\b", "a\nb"])
def test_a_dataset_name_that_leaves_the_storage_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "home"))
    write_dataset(tmp_path / "dataset", train_rows=10, test_rows=5, num_dense=13, num_sparse=26)
    assert run(["up", "local"]) == 0
    before = sorted(tmp_path.rglob("*"))
    assert run(["data", "push", str(tmp_path / "dataset"), "--name", name]) == 2
    assert "the name" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
