"""Copies on the machine's own disk: read before the bucket, and never believed over it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_layers import BACKGROUND, FINGERPRINT, INCREMENTAL, Model, checkpointer, same, save
from tests.trainer.support_layers import trained as undisturbed
from tests.trainer.support_runs import run_here
from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.near import NearOptions

if TYPE_CHECKING:
    from tests.trainer.support_clouds import CloudPlace
    from trainer.checkpoint import Checkpointer
    from trainer.checkpoint.save.saves import SavingOptions


@pytest.fixture
def near(tmp_path: Path) -> Path:
    return tmp_path / "disk"


def _options(near: Path, usual: SavingOptions = INCREMENTAL, **changes: int) -> SavingOptions:
    return replace(usual, near=NearOptions(folder=str(near), **changes))


def _saved(uri: str, options: SavingOptions, steps: int = 5) -> None:
    model = Model()
    with checkpointer(uri, options=options) as writer:
        for step in range(1, steps + 1):
            model.train(step)
            save(writer, model, step)


def _resumed(writer: Checkpointer) -> Model:
    model = Model()
    model.spoil()
    found = writer.load_newest(model.state, FINGERPRINT, initial=model)
    assert found == (5, {"step": 5})
    return model


def _data_reads(cloud: CloudPlace) -> int:
    """How often the bytes of a data file were requested; lists by its name are no reads."""
    reads = (each.path for each in cloud.proxy.requests if each.method == "GET")
    lists = ("list-type=", "comp=list")
    return sum(".bin" in path and not any(mark in path for mark in lists) for path in reads)


def _copies(near: Path) -> dict[str, Path]:
    return {path.name: path for path in near.glob("*/step-*/*")}


@pytest.mark.parametrize("usual", [INCREMENTAL, BACKGROUND], ids=["at once", "in the background"])
def test_a_resume_on_the_same_machine_reads_no_data_from_the_bucket(
    cloud: CloudPlace, near: Path, usual: SavingOptions
) -> None:
    uri = cloud.new_uri()
    _saved(uri, _options(near, usual))
    cloud.proxy.clear()
    with checkpointer(uri, options=_options(near)) as writer:
        assert same(_resumed(writer), undisturbed(5))
        assert _data_reads(cloud) == 0
        assert 0 < writer.near_bytes <= sum(path.stat().st_size for path in _copies(near).values())


@pytest.mark.parametrize("how", ["gone", "flipped", "short", "another", "unreadable"])
def test_a_copy_that_differs_is_passed_over_and_the_newest_checkpoint_comes_from_the_bucket(
    enter_cloud: Any, near: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    cloud = enter_cloud("s3")
    uri = cloud.new_uri()
    _saved(uri, _options(near))
    copies = sorted(_copies(near).values())
    victim = copies[-1]
    match how:
        case "gone":
            shutil.rmtree(victim.parent)
        case "flipped":
            data = bytearray(victim.read_bytes())
            data[0] ^= 1
            victim.write_bytes(data)
        case "short":
            victim.write_bytes(victim.read_bytes()[:-1])
        case "another":
            victim.write_bytes(copies[0].read_bytes())
        case _:
            victim.unlink()
            victim.mkdir()
    cloud.proxy.clear()
    with checkpointer(uri, options=_options(near)) as writer:
        assert same(_resumed(writer), undisturbed(5))
    assert _data_reads(cloud) > 0
    assert ("the bucket is read instead" in caplog.text) == (how != "gone")


def test_another_machine_and_another_bucket_of_the_same_disk_read_the_bucket(
    enter_cloud: Any, near: Path, tmp_path: Path
) -> None:
    cloud = enter_cloud("s3")
    uri, other = cloud.new_uri(), cloud.new_uri()
    _saved(uri, _options(near))
    cloud.proxy.clear()
    with checkpointer(uri, options=_options(tmp_path / "elsewhere")) as writer:
        assert same(_resumed(writer), undisturbed(5))
        assert writer.near_bytes == 0
    assert _data_reads(cloud) > 0
    with checkpointer(other, options=_options(near)) as writer:
        model = Model()
        assert writer.load_newest(model.state, FINGERPRINT, initial=model) is None


def test_only_the_copies_that_the_newest_checkpoints_need_stay(enter_cloud: Any, near: Path) -> None:
    cloud = enter_cloud("s3")
    model, uri = Model(), cloud.new_uri()
    with checkpointer(uri, options=_options(near)) as writer:
        for step in range(1, 13):
            model.train(step)
            save(writer, model, step)
            # Three differentials upon the initial state, then a merged layer.
            assert len(_copies(near)) <= 4
    assert not list(near.glob("*/.drafts/*"))


@pytest.mark.parametrize("how", ["no room", "no folder"])
def test_a_disk_that_takes_no_copy_costs_the_copy_alone(enter_cloud: Any, near: Path, how: str) -> None:
    cloud = enter_cloud("s3")
    uri = cloud.new_uri()
    if how == "no folder":
        near.write_text("a file instead of the folder", encoding="utf-8")
    options = _options(near, limit_bytes=100) if how == "no room" else _options(near)
    _saved(uri, options)
    assert _copies(near) == {}
    with checkpointer(uri, options=options) as writer:
        assert same(_resumed(writer), undisturbed(5))


def test_a_write_that_the_bucket_refuses_leaves_no_copy(enter_cloud: Any, near: Path) -> None:
    cloud = enter_cloud("s3")
    uri = cloud.new_uri()
    model = Model()
    with checkpointer(uri, options=_options(near)) as writer:
        model.train(1)
        cloud.proxy.faults.append(cloud.refusal(403, method="PUT", times=100, holding=".bin"))
        with pytest.raises(CheckpointError, match="permission"):
            save(writer, model, 1)
    assert _copies(near) == {}
    assert not list(near.glob("*/.drafts/*"))


def test_a_folder_of_checkpoints_keeps_no_second_copy(tmp_path: Path, near: Path) -> None:
    _saved(str(tmp_path / "checkpoints"), _options(near))
    assert not near.exists()


def test_a_killed_run_with_a_bucket_resumes_from_its_own_disk(
    enter_cloud: Any, near: Path, tmp_path: Path
) -> None:
    cloud = enter_cloud("s3")
    write_dataset(tmp_path / "data", train_rows=1000, test_rows=300, num_dense=3, num_sparse=3)
    settings = {"deterministic": True, "checkpoint_interval": 10, "lr_decay": "none"}
    whole = run_here(tmp_path / "data", tmp_path / "whole", **settings)
    settings |= {"checkpoint_dir": cloud.new_uri(), "checkpoint_near_dir": str(near)}
    for steps in (13, None):
        parts = run_here(tmp_path / "data", tmp_path / "parts", **settings, num_iterations=steps)
    first, second = parts.lines("start")
    assert (first["near_bytes"], first["resume_s"]) == (0, None)
    assert second["resumed_from"] == 13
    assert second["near_bytes"] > 0
    assert second["resume_s"] > 0
    for name in ("model_digest", "samples_digest"):
        assert parts.summary[name] == whole.summary[name]
