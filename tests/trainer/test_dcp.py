"""Checkpoints in torch.distributed.checkpoint's format: to and from it, and from another tool's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed import checkpoint as torch_checkpoint

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import SMALL, run_here
from trainer.checkpoint.load.reading import open_committed
from trainer.commands.dcp import main
from trainer.serving.scorer import read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled:UserWarning"
)  # by torch's own calls
SETTINGS: dict[str, Any] = {"lr_decay": "none", "deterministic": True}
TABLE = "embeddings.embedding_bags.C1.weight"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "data"
    write_dataset(folder)
    return folder


@pytest.fixture(scope="module")
def run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten steps, whose checkpoint has the changes since the initial tables alone."""
    folder = tmp_path_factory.mktemp("run") / "run"
    run_here(dataset, folder, num_iterations=10, checkpoint_mode="incremental", **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def converted(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted") / "dcp"
    assert main(["to", "--checkpoint", str(run / "checkpoints"), "--out", str(folder)]) == 0
    return folder


def _weights(run: Path) -> dict[str, torch.Tensor]:
    trained = read_checkpoint(open_committed(str(run / "checkpoints")))
    tables = {f"embeddings.embedding_bags.{name}.weight": each for name, each in trained.tables.items()}
    return tables | {f"dense.{name}": each for name, each in trained.dense.items()}


def test_torch_reads_the_weights_by_the_names_of_the_module(run: Path, converted: Path) -> None:
    expected = _weights(run)
    found = {name: torch.empty_like(each) for name, each in expected.items()}
    torch_checkpoint.load(found, checkpoint_id=converted, no_dist=True)
    for name, each in expected.items():
        assert torch.equal(found[name], each), name


def test_a_run_resumes_from_a_converted_checkpoint_as_from_its_own(
    dataset: Path, run: Path, converted: Path, tmp_path: Path
) -> None:
    back = ["from", "--dcp", str(converted), "--out", str(tmp_path / "run" / "checkpoints"), "--trusted"]
    assert main(back) == 0
    whole = run_here(dataset, tmp_path / "whole", num_iterations=20, **SETTINGS)
    resumed = run_here(dataset, tmp_path / "run", num_iterations=20, **SETTINGS)
    (begun,) = resumed.lines("start")
    assert begun["resumed_from"] == 10
    assert resumed.summary["model_digest"] == whole.summary["model_digest"]
    assert run.exists()


@pytest.mark.parametrize("prefix", ["", "model.", "module.model."])
def test_the_weights_of_another_tool_are_taken_with_the_sizes_of_a_checkpoint(
    run: Path, tmp_path: Path, prefix: str
) -> None:
    random = torch.Generator().manual_seed(1)
    others = {name: torch.rand(each.shape, generator=random) for name, each in _weights(run).items()}
    given = {f"{prefix}{name}": each for name, each in others.items()} | {"epoch": torch.tensor(3)}
    torch_checkpoint.save(given, checkpoint_id=tmp_path / "dcp", no_dist=True)
    like = ["--like", str(run / "checkpoints"), "--trusted"]
    assert (
        main(["from", "--dcp", str(tmp_path / "dcp"), "--out", str(tmp_path / "own" / "checkpoints"), *like])
        == 0
    )
    for name, each in _weights(tmp_path / "own").items():
        assert torch.equal(each, others[name]), name


def _refused(words: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    assert main(words) == code
    return capsys.readouterr().err


def test_what_cannot_be_converted_is_refused(
    run: Path, converted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = str(run / "checkpoints")
    error = _refused(["to", "--checkpoint", own, "--out", str(converted)], capsys, 64)
    assert "is not an empty folder" in error
    error = _refused(["from", "--dcp", str(converted), "--out", str(tmp_path / "new")], capsys, 64)
    assert "a pickle, which can run any code" in error
    trusted = ["--trusted", "--out", str(tmp_path / "new")]
    assert "is no checkpoint of torch" in _refused(["from", "--dcp", str(tmp_path), *trusted], capsys, 1)
    error = _refused(["from", "--dcp", str(converted), "--trusted", "--out", own], capsys, 64)
    assert "holds checkpoints" in error
    foreign = str(tmp_path / "foreign")
    torch_checkpoint.save(
        {TABLE: torch.zeros(3, SMALL["embedding_dim"])}, checkpoint_id=foreign, no_dist=True
    )
    error = _refused(["from", "--dcp", foreign, *trusted], capsys, 64)
    assert "has no cloudrec.json, so another tool wrote it; give --like" in error
    error = _refused(["from", "--dcp", foreign, "--like", own, *trusted], capsys, 1)
    assert "--like must be a checkpoint of the same model" in error or "is [3, 8], but the model" in error


@pytest.mark.parametrize(("way", "step"), [("to", "a"), ("from", None)])
def test_a_bad_command_line_names_the_help_of_the_command(
    capsys: pytest.CaptureFixture[str], way: str, step: str | None
) -> None:
    error = _refused([way, *(["--step", step] if step else [])], capsys, 64)
    assert f"`python -m trainer.dcp {way} --help` lists the flags" in error


def test_the_side_file_of_another_version_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dcp"
    assert main(["to", "--checkpoint", str(run / "checkpoints"), "--out", str(folder)]) == 0
    side = folder / "cloudrec.json"
    side.write_text(json.dumps({**json.loads(side.read_text()), "schema_version": 9}))
    error = _refused(["from", "--dcp", str(folder), "--out", str(tmp_path / "new"), "--trusted"], capsys, 1)
    assert "is cloudrec-dcp version 9, this trainer reads cloudrec-dcp version 1" in error
