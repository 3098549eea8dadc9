"""Checkpoints, digests and initial tables on a real GPU: `python -m pytest tests/gpu`.

Everything here is also tested on a stand-in, by test_device_snapshot.py, test_device_learner.py,
test_caching.py, test_drawing.py and test_digest.py. These tests show whether it behaves as the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_device import SAVES, DeviceModel, save_while_training, torn
from tests.trainer.support_runs import SMALL, run_here
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.checkpoint import Checkpointer, Entry, TensorShard
from trainer.checkpoint.save.limits import StreamLimits
from trainer.checkpoint.save.saves import SavingOptions
from trainer.loop.session.opening import open_session
from trainer.sharding.digest import model_digest
from trainer.sharding.drawing import draw
from trainer.tables.kernels import table_kernels

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint import State
    from trainer.checkpoint.save.saves import Mode

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

MB = 1 << 20
ON_GPU: dict[str, Any] = {"device": "cuda", "deterministic": True, "num_epochs": 2, "lr_decay": "none"}
CACHED: dict[str, Any] = {"compute_kernels": ("fused_uvm_caching",), "uvm_cache_load_factor": 0.5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("limits", [StreamLimits(chunk=4096, copied=3000), StreamLimits()], ids=str)
def test_a_checkpoint_has_the_values_of_the_cut_whatever_training_changes_meanwhile(
    tmp_path: Path, mode: Mode, limits: StreamLimits
) -> None:
    model = DeviceModel(None, rows=200_000, place="cuda")
    options = SavingOptions(mode=mode, in_background=True, stream=limits)
    reports, cuts = save_while_training(tmp_path, model, options)
    assert [report.step for report in reports] == list(range(1, SAVES + 1))
    assert torn(tmp_path, cuts, model) == []


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_a_snapshot_takes_the_memory_of_its_buffers_on_the_gpu(tmp_path: Path, mode: Mode) -> None:
    model = DeviceModel(None, rows=8_000_000, place="cuda")
    limits = StreamLimits(chunk=16 * MB, copied=32 * MB)
    options = SavingOptions(mode=mode, in_background=True, stream=limits)
    cuts, reports = [], []
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options) as writer:
        model.train(100_000)
        cuts.append(model.copy())
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        writer.save(1, model.state, {}, {}, initial=model, wait=False)
        while writer.is_saving:
            model.train(20_000)
            reports += writer.poll()
        taken = torch.cuda.max_memory_allocated() - before
    assert taken < 2 * limits.chunk + 2 * limits.copied + 128 * MB  # a step and the stamps' bits take some
    assert torn(tmp_path, cuts, model) == []


def _whole(tensor: torch.Tensor) -> State:
    return {"x": Entry(tuple(tensor.shape), (TensorShard(tensor, (0,) * tensor.dim()),))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(5000, 64), (300_000,), (7, 3, 2), ()])
def test_the_digest_is_that_of_the_cpu(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert model_digest(_whole(values.cuda())) == model_digest(_whole(values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("offsets", [(0, 0), (12_345, 8)])
def test_a_table_is_drawn_with_the_bits_of_the_cpu(dtype: torch.dtype, offsets: tuple[int, int]) -> None:
    drawn = []
    for device in ("cpu", "cuda"):
        target = torch.empty(50_000, 24, dtype=dtype, device=device)
        draw(target, version=2, seed=3, table="C1", shape=(90_000, 32), offsets=offsets, scale=0.7)
        drawn.append(target.cpu())
    assert torch.equal(*drawn)


@pytest.mark.parametrize("settings", [{}, CACHED, {"sharding_types": ("row_wise",)}], ids=str)
@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_an_interrupted_run_continues_as_an_uninterrupted_one(
    dataset: Path, tmp_path: Path, mode: str, settings: dict[str, Any]
) -> None:
    named = {**ON_GPU, **settings, "checkpoint_mode": mode, "checkpoint_interval": 7}
    whole = run_here(dataset, tmp_path / "whole", **named).summary
    for steps in (13, 40, None):
        parts = run_here(dataset, tmp_path / "parts", **named, num_iterations=steps).summary
    assert parts["samples_digest"] == whole["samples_digest"]
    assert parts["logloss"] == pytest.approx(whole["logloss"], rel=1e-5)


def test_the_memory_of_a_cached_table_is_stale_until_it_is_flushed(dataset: Path, tmp_path: Path) -> None:
    paths = {"dataset_path": str(dataset), "output_dir": str(tmp_path)}
    config = make_config({**SMALL, **ON_GPU, **CACHED, **paths})
    with join_world("cuda", tmp_path) as world, open_session(config, world) as session:
        for step in session.steps():
            session.advance(step)
        learner = session.run.learner
        kernels = [kernel for kernel, _ in table_kernels(learner.model)]
        stale = [weight.cpu() for kernel in kernels for weight in kernel.split_embedding_weights()]
        names = sorted(name for name in learner.state if name.endswith("/weight"))  # this flushes
        flushed = [weight.cpu() for kernel in kernels for weight in kernel.split_embedding_weights()]
    assert names
    assert any(not torch.equal(old, new) for old, new in zip(stale, flushed, strict=True))
