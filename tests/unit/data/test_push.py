"""Claims about `data push` that need no cloud: what is sent, what is refused, what is left when it fails."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from cloudrec.data import places
from cloudrec.data.push import PushPlan, carry_out, survey
from cloudrec.errors import DataError, StorageError, UsageError
from tests.unit.data.support_push import SMALL, make_dataset, names, write_manifest


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "prepared", sizes=(SMALL, SMALL, 5 * SMALL))


def push(source: Path, uri: str, *, overwrite: bool = False) -> tuple[PushPlan, list[int]]:
    place = places.find(uri)
    plan, told = survey(source, place), []
    carry_out(plan, place, overwrite=overwrite, progress=lambda done, _total: told.append(done))
    return plan, told


def test_a_pushed_dataset_is_the_same_dataset(dataset: Path, tmp_path: Path) -> None:
    plan, told = push(dataset, f"file://{tmp_path}/there")
    assert names(tmp_path / "there") == names(dataset)
    for name in names(dataset):
        assert (tmp_path / "there" / name).read_bytes() == (dataset / name).read_bytes()
    assert told[-1] == plan.bytes == 7 * SMALL


def test_what_is_there_is_not_sent_again(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    plan, told = push(dataset, str(tmp_path / "there"))
    assert plan.nothing_to_do
    assert told == []


def test_a_file_that_was_damaged_there_is_sent_again_alone(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    damaged = tmp_path / "there" / "train" / "shard-00000.dense.npy"
    damaged.write_bytes(b"x" * SMALL)
    plan, _ = push(dataset, str(tmp_path / "there"))
    assert [file.path for file in plan.send] == ["train/shard-00000.dense.npy"]
    assert damaged.read_bytes() == (dataset / "train" / "shard-00000.dense.npy").read_bytes()


def test_another_dataset_is_not_replaced_unless_asked_for(dataset: Path, tmp_path: Path) -> None:
    push(dataset, str(tmp_path / "there"))
    other = make_dataset(tmp_path / "other", seed=2, sizes=(SMALL, SMALL, 5 * SMALL))
    before = (tmp_path / "there" / "dataset.json").read_bytes()
    with pytest.raises(UsageError, match="holds another dataset"):
        push(other, str(tmp_path / "there"))
    assert (tmp_path / "there" / "dataset.json").read_bytes() == before
    push(other, str(tmp_path / "there"), overwrite=True)
    assert (tmp_path / "there" / "dataset.json").read_bytes() == (other / "dataset.json").read_bytes()


def test_a_dataset_that_fails_half_way_has_no_manifest_there(dataset: Path, tmp_path: Path) -> None:
    (dataset / "train" / "shard-00000.dense.npy").write_bytes(b"y" * SMALL)  # its size tells nothing
    with pytest.raises(DataError, match="is damaged: its crc32"):
        push(dataset, str(tmp_path / "there"))
    assert "dataset.json" not in names(tmp_path / "there")


def test_files_that_are_missing_or_cut_are_told_before_anything_is_sent(
    dataset: Path, tmp_path: Path
) -> None:
    (dataset / "train" / "shard-00000.dense.npy").write_bytes(b"cut")
    with pytest.raises(DataError, match="has 3 bytes, not 3,000"):
        push(dataset, str(tmp_path / "there"))
    (dataset / "train" / "shard-00000.dense.npy").unlink()
    with pytest.raises(DataError, match="is missing"):
        push(dataset, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


def test_what_is_no_prepared_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no dataset\.json"):
        push(tmp_path, str(tmp_path / "there"))


def test_a_manifest_that_names_files_elsewhere_is_refused(dataset: Path, tmp_path: Path) -> None:
    splits = json.loads((dataset / "dataset.json").read_text())["splits"]
    splits["train"]["shards"][0]["files"]["dense"]["path"] = "../secret"
    write_manifest(dataset, splits)
    with pytest.raises(DataError, match="outside the dataset"):
        push(dataset, str(tmp_path / "there"))


@pytest.mark.parametrize(
    ("uri", "told"),
    [("ftp://host/x", "'ftp' is not known"), ("s3://", "names no place"), ("s3:///x", "no place")],
)
def test_a_uri_that_leads_nowhere_is_refused(dataset: Path, uri: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        push(dataset, uri)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StorageError, match="make it writable"):
        push(dataset, str(tmp_path / "closed" / "there"))


def test_a_file_where_a_folder_is_needed_is_told(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train").write_text("a file where a folder is needed")
    with pytest.raises(StorageError, match="cannot write"):
        push(dataset, str(tmp_path / "there"))
