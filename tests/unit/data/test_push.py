"""`data push` without a cloud: uploads, refusals, and the state after a failure."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from cloudrec.data.check import check
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.push import PushPlan, carry_out, survey
from cloudrec.data.stores import open_store
from cloudrec.errors import DataError, PreflightError, StorageError, UsageError
from tests.standins import login_node
from tests.trainer.support_dataset import make_version_1
from tests.unit.data.support_push import SMALL, make_dataset, names, write_manifest
from tests.unit.data.support_rows import good_text


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "prepared", sizes=(SMALL, SMALL, 5 * SMALL))


def push(source: Path, uri: str, *, overwrite: bool = False) -> tuple[PushPlan, list[int]]:
    store = open_store(uri)
    plan, told = survey(source, store), []
    carry_out(plan, store, overwrite=overwrite, progress=lambda done, _total: told.append(done))
    return plan, told


def test_a_pushed_dataset_is_the_same_dataset(dataset: Path, tmp_path: Path) -> None:
    plan, told = push(dataset, f"file://{tmp_path}/there")
    assert names(tmp_path / "there") == names(dataset)
    for name in names(dataset):
        assert (tmp_path / "there" / name).read_bytes() == (dataset / name).read_bytes()
    assert told[-1] == plan.bytes == 7 * SMALL


def test_a_dataset_goes_to_a_login_node_and_is_named_as_its_cluster_reads_it(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, there = login_node.install(tmp_path / "ssh", monkeypatch), tmp_path / "there it is"
    (there / "train").mkdir(parents=True)
    (there / "train" / "shard-00000.dense.npy").write_bytes(b"x" * SMALL)
    plan, told = push(dataset, node.uri(there))
    assert names(there) == names(dataset)
    assert told[-1] == plan.bytes == 7 * SMALL
    assert plan.dataset == there.as_uri()
    assert push(dataset, node.uri(there))[0].nothing_to_do
    node.fail("refuse", "Permission denied (publickey).")
    with pytest.raises(PreflightError, match="refuses us"):
        push(dataset, node.uri(there))


def test_existing_files_are_not_uploaded_again(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    plan, told = push(dataset, str(tmp_path / "there"))
    assert plan.nothing_to_do
    assert told == []


def test_only_a_damaged_file_is_uploaded_again(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    damaged = tmp_path / "there" / "train" / "shard-00000.dense.npy"
    damaged.write_bytes(b"x" * SMALL)
    plan, _ = push(dataset, str(tmp_path / "there"))
    assert [file.path for file in plan.send] == ["train/shard-00000.dense.npy"]
    assert damaged.read_bytes() == (dataset / "train" / "shard-00000.dense.npy").read_bytes()


def test_another_dataset_is_replaced_only_on_request(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    other = make_dataset(tmp_path / "other", seed=2, sizes=(SMALL, SMALL, 5 * SMALL))
    before = (tmp_path / "there" / "dataset.json").read_bytes()
    with pytest.raises(UsageError, match="holds another dataset"):
        push(other, str(tmp_path / "there"))
    assert (tmp_path / "there" / "dataset.json").read_bytes() == before
    push(other, str(tmp_path / "there"), overwrite=True)
    assert (tmp_path / "there" / "dataset.json").read_bytes() == (other / "dataset.json").read_bytes()


def test_an_interrupted_upload_leaves_no_manifest(dataset: Path, tmp_path: Path) -> None:
    (dataset / "train" / "shard-00000.dense.npy").write_bytes(b"y" * SMALL)  # its size is unchanged
    with pytest.raises(DataError, match="is damaged: its crc32"):
        push(dataset, str(tmp_path / "there"))
    assert "dataset.json" not in names(tmp_path / "there")


def test_missing_or_truncated_files_are_reported_before_any_upload(dataset: Path, tmp_path: Path) -> None:
    (dataset / "train" / "shard-00000.dense.npy").write_bytes(b"cut")
    with pytest.raises(DataError, match="has 3 bytes, not 3,000"):
        push(dataset, str(tmp_path / "there"))
    (dataset / "train" / "shard-00000.dense.npy").unlink()
    with pytest.raises(DataError, match="is missing"):
        push(dataset, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


def test_a_folder_without_a_prepared_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no dataset\.json"):
        push(tmp_path, str(tmp_path / "there"))


def test_a_manifest_that_names_files_outside_the_folder_is_refused(dataset: Path, tmp_path: Path) -> None:
    splits = json.loads((dataset / "dataset.json").read_text())["splits"]
    splits["train"]["shards"][0]["files"]["dense"]["path"] = "../secret"
    write_manifest(dataset, splits)
    with pytest.raises(DataError, match="outside the dataset"):
        push(dataset, str(tmp_path / "there"))


@pytest.mark.parametrize(
    ("uri", "told"),
    [("ftp://host/x", "'ftp' is not known"), ("s3://", "names no place"), ("s3:///x", "no place")],
)
def test_an_invalid_uri_is_refused(dataset: Path, uri: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        push(dataset, uri)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_reported(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StorageError, match="make it writable"):
        push(dataset, str(tmp_path / "closed" / "there"))


def test_a_file_instead_of_a_folder_is_reported(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train").write_text("a file where a folder is needed")
    with pytest.raises(StorageError, match="cannot write"):
        push(dataset, str(tmp_path / "there"))


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A dataset with a vocabulary."""
    (tmp_path / "rows.tsv").write_bytes(good_text(200))
    prepare(str(tmp_path / "rows.tsv"), tmp_path / "data")
    return tmp_path / "data"


def test_a_vocabulary_is_pushed_with_its_dataset_and_again_if_damaged(prepared: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    push(prepared, str(there))
    assert names(there) == names(prepared) - {".lock"}
    check(there, deep=True)
    (there / "vocabulary/C1.npy").write_bytes(bytes((there / "vocabulary/C1.npy").stat().st_size))
    plan, _ = push(prepared, str(there))
    assert [file.path for file in plan.send] == ["vocabulary/C1.npy"]
    check(there, deep=True)


def test_a_damaged_vocabulary_is_not_pushed(prepared: Path, tmp_path: Path) -> None:
    path = prepared / "vocabulary/C1.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"C1.npy is damaged: its crc32"):
        push(prepared, str(tmp_path / "there"))
    assert "dataset.json" not in names(tmp_path / "there")


def test_equal_rows_with_another_vocabulary_are_another_dataset(prepared: Path, tmp_path: Path) -> None:
    renamed = b"\n".join(
        b"\t".join([*line.split(b"\t")[:14], *(f and b"1" + f[1:] for f in line.split(b"\t")[14:])])
        for line in (tmp_path / "rows.tsv").read_bytes().splitlines()
    )
    (tmp_path / "renamed.tsv").write_bytes(renamed)
    other = tmp_path / "other"
    prepare(str(tmp_path / "renamed.tsv"), other)
    digests = [json.loads((folder / "dataset.json").read_text())["digest"] for folder in (prepared, other)]
    assert digests[0] == digests[1]
    push(prepared, str(tmp_path / "there"))
    with pytest.raises(UsageError, match="holds this dataset with another encoding"):
        push(other, str(tmp_path / "there"))
    push(other, str(tmp_path / "there"), overwrite=True)
    assert check(tmp_path / "there", deep=True).encoding_digest == check(other).encoding_digest


def test_a_vocabulary_is_added_to_a_dataset_of_schema_version_1(prepared: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(prepared, tmp_path / "old"))
    make_version_1(old)
    push(old, str(tmp_path / "there"))
    plan, _ = push(prepared, str(tmp_path / "there"))
    assert {Path(file.path).parent.name for file in plan.send} == {"vocabulary"}
    assert check(tmp_path / "there", deep=True).encoding_digest == check(prepared).encoding_digest
    with pytest.raises(UsageError, match="with another encoding"):  # it would lose the vocabulary
        push(old, str(tmp_path / "there"))
