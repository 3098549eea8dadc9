"""Training on a real GPU against the CPU, whose losses the oracles of tests/trainer check.

Every run is a whole `python -m trainer` in this process: same data, same seed, and the loss of every step
is compared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.trainer.support_dataset import Rows, write_rows
from tests.trainer.support_runs import run_here
from trainer.base.errors import NonFiniteLossError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
    pytest.mark.filterwarnings("default"),  # those of torch and fbgemm differ from version to version
]

STEPS = 50
IDS = 50  # of every table
ROWS = {"train": 1000, "test": 300}
BASE: dict[str, Any] = {
    "num_iterations": STEPS,
    "num_epochs": 2,
    "log_interval": 1,
    "lr_decay": "none",
    "embedding_dim": 16,
    "dense_arch_layer_sizes": (32, 16),
    "over_arch_layer_sizes": (32, 1),
    "optimizer_eps": 1e-4,
}
FP32, BF16, FP16 = 1e-4, 1e-2, 2e-3  # of a loss of about 0.7


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    contents = {name: _rows(count, seed) for seed, (name, count) in enumerate(ROWS.items())}
    write_rows(path, contents, num_embeddings={f"C{place}": IDS for place in range(1, 7)}, shard_rows=300)
    return path


def _rows(count: int, seed: int) -> Rows:
    """Return rows whose label says whether one of the first two ids is odd."""
    random = np.random.default_rng(seed)
    sparse = random.integers(0, IDS, (6, count), dtype=np.int32)
    labels = ((sparse[0] % 2) + (sparse[1] % 2) > 0).astype(np.uint8)
    return Rows(labels, random.random((count, 5), dtype=np.float32), sparse)


def _losses(dataset: Path, output: Path, **settings: Any) -> tuple[list[float], dict[str, Any]]:
    outcome = run_here(dataset, output, **{**BASE, **settings})
    assert outcome.code == 0
    return [line["loss"] for line in outcome.lines("train")], outcome.summary


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    # name: settings of both runs, settings of the GPU's alone, largest difference of a loss
    "defaults": ({}, {}, FP32),
    "plain pipeline": ({}, {"pipeline": "plain"}, FP32),
    "sgd": ({"table_optimizer": "sgd", "dense_optimizer": "sgd"}, {}, FP32),
    "adagrad": ({"table_optimizer": "adagrad", "dense_optimizer": "adagrad"}, {}, FP32),
    "adam": ({"table_optimizer": "adam"}, {}, FP32),
    "partial_rowwise_adam": ({"table_optimizer": "partial_rowwise_adam"}, {}, FP32),
    "row_wise": ({"sharding_types": ("row_wise",)}, {}, FP32),
    "column_wise": ({"sharding_types": ("column_wise",), "table_optimizer": "adagrad"}, {}, FP32),
    "data_parallel": ({"data_parallel": True}, {}, FP32),
    "uvm": ({}, {"compute_kernels": ("fused_uvm",)}, FP32),
    "uvm_caching": ({}, {"compute_kernels": ("fused_uvm_caching",), "uvm_cache_load_factor": 0.5}, FP32),
    "compile": ({}, {"compile": True}, FP32),
    "dcn": ({"interaction": "dcn", "dcn_low_rank_dim": 8}, {}, FP32),
    "accumulation": ({"gradient_accumulation_steps": 2}, {}, FP32),
    "clipping": ({"gradient_clip_norm": 0.05, "table_gradient_clip_norm": 0.01}, {}, FP32),
    "recompute": ({"activation_checkpointing": True}, {}, FP32),
    "deepfm": ({"model": "deepfm"}, {}, FP32),
    "wide_deep": ({"model": "wide_deep"}, {}, FP32),
    "tf32": ({}, {"precision": "tf32"}, BF16),
    "bf16": ({}, {"precision": "bf16"}, BF16),
    "bf16 compile": ({}, {"precision": "bf16", "compile": True}, BF16),
    "fp16": ({}, {"precision": "fp16"}, FP16),
    "fp16 tables": ({}, {"embedding_weight_precision": "fp16", "learning_rate": 0.02}, BF16),
    "deterministic": ({}, {"deterministic": True}, FP32),
}


@pytest.mark.parametrize("case", CASES)
def test_every_loss_is_that_of_the_cpu(dataset: Path, tmp_path: Path, case: str) -> None:
    both, own, largest = CASES[case]
    expected, of_cpu = _losses(dataset, tmp_path / "cpu", device="cpu", **both)
    losses, of_gpu = _losses(dataset, tmp_path / "gpu", device="cpu", **both, **own)
    assert len(losses) == len(expected) == STEPS
    assert max(abs(one - other) for one, other in zip(losses, expected, strict=True)) < largest
    assert of_gpu["samples_digest"] == of_cpu["samples_digest"]
    assert of_gpu["auc"] == pytest.approx(of_cpu["auc"], abs=10 * largest)
    assert of_gpu["logloss"] == pytest.approx(of_cpu["logloss"], abs=2 * largest)


def test_two_deterministic_runs_end_with_the_same_model(dataset: Path, tmp_path: Path) -> None:
    ends = [_losses(dataset, tmp_path / str(number), device="cpu", deterministic=True) for number in range(2)]
    assert ends[0][0] == ends[1][0]
    assert ends[0][1]["model_digest"] == ends[1][1]["model_digest"]


def test_a_checkpoint_of_a_cpu_continues_on_the_gpu(dataset: Path, tmp_path: Path) -> None:
    whole, summary = _losses(dataset, tmp_path / "whole", device="cpu")
    first, _ = _losses(dataset, tmp_path / "parts", device="cpu", num_iterations=20)
    rest, end = _losses(dataset, tmp_path / "parts", device="cpu")
    assert len(first) == 20
    assert end["samples_digest"] == summary["samples_digest"]
    assert max(abs(one - other) for one, other in zip(rest[-30:], whole[-30:], strict=True)) < FP32


def test_a_loss_that_is_not_finite_ends_the_run_at_its_step(tmp_path: Path) -> None:
    loader = "tests.trainer.test_data_formats:good"
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1e30, "checkpoint_interval": 1}
    with pytest.raises(NonFiniteLossError) as caught:
        run_here(None, tmp_path, dataset=loader, device="cuda", **settings)
    assert "the loss became NaN or infinite at step 2 " in str(caught.value)
    assert "the last good checkpoint is that of step 1 in" in str(caught.value)


def test_the_loss_falls_on_labels_that_depend_on_an_id(dataset: Path, tmp_path: Path) -> None:
    losses, summary = _losses(
        dataset, tmp_path, device="cpu", num_iterations=400, num_epochs=10, learning_rate=0.1
    )
    assert math.fsum(losses[-20:]) / 20 < math.fsum(losses[:20]) / 20 - 0.2
    assert summary["auc"] > 0.9
