"""Evaluation on a real GPU: `python -m pytest tests/gpu/test_evaluation.py -s` prints the times.

test_metrics.py tests the same arithmetic on CPUs. These tests show that a GPU gives the same metrics, that no
batch waits for it, and how long it takes for Criteo's day 23: 89 million rows.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
import torch

from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.models.model import ModelShape
from trainer.report.metrics import BinaryMetrics
from trainer.report.task_metrics import TaskMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

DAY_ROWS = 89_137_319
BATCH = 4 * 65_536
TARGET_S = 10.0


def _samples(size: int, *, decimals: int, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size + decimals)
    logits = (2 * torch.randn(size, generator=generator)).round(decimals=decimals)
    bound = torch.sigmoid(logits - 1) if rate == 0.5 else torch.full((size,), rate)
    return logits, (torch.rand(size, generator=generator) < bound).float()


@contextmanager
def _learner(
    output: Path, device: str, *, tables: int, rows: int, dim: int, **settings: Any
) -> Iterator[Learner]:
    shape = ModelShape(
        num_dense=13,
        num_embeddings={f"C{index + 1}": rows for index in range(tables)},
        embedding_dim=dim,
        dense_arch_layer_sizes=(512, 256, dim),
        over_arch_layer_sizes=(1024, 1024, 512, 256, 1),
    )
    sizes = {
        "embedding_dim": dim,
        "dense_arch_layer_sizes": shape.dense_arch_layer_sizes,
        "over_arch_layer_sizes": shape.over_arch_layer_sizes,
    }
    config = make_config(
        {"threads": 1, "optimizer_eps": 1e-4, "seed": 3, "device": device, **sizes, **settings}
    )
    with join_world(device, output) as world:
        yield Learner(config, shape, world, total_steps=100)


def _batch(size: int, *, tables: int, rows: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        dense=torch.rand(size, 13, generator=generator),
        sparse=torch.randint(rows, (tables, size), generator=generator, dtype=torch.int32),
        labels=(torch.rand(size, generator=generator) < 0.03).float(),
        sample_ids=torch.arange(size),
        global_size=size,
    )


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    """Make every call that waits for the GPU an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("most_bytes", [None, 20_000], ids=["on the GPU", "some wait on the CPU"])
@pytest.mark.parametrize("rate", [0.5, 0.001, 0.0, 1.0])
@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_the_metrics_are_those_of_the_cpu(decimals: int, rate: float, most_bytes: int | None) -> None:
    logits, labels = _samples(30_000, decimals=decimals, rate=rate)
    labels[::7] = -1.0  # without a label
    logits[::7] = math.nan
    on_cpu, on_gpu = BinaryMetrics(), BinaryMetrics("cuda", most_bytes=most_bytes)
    for scores, truth in zip(logits.split(4096), labels.split(4096), strict=True):
        on_cpu.update(scores, truth)
        on_gpu.update(scores.cuda(), truth.cuda())
    expected, found = on_cpu.compute(), on_gpu.compute()
    assert {name: found[name] for name in ("auc", "samples", "positives")} == {
        name: expected[name] for name in ("auc", "samples", "positives")
    }
    assert found == pytest.approx(expected, rel=1e-12)


def test_no_batch_waits_for_the_gpu(tmp_path: Path) -> None:
    batches = [_batch(size, tables=4, rows=500, seed=size) for size in (4096, 4096, 4096, 4096, 1000)]
    with _learner(tmp_path, "cuda", tables=4, rows=500, dim=16) as learner:
        metrics = TaskMetrics((), "cuda")
        for _ in range(2):  # the first one makes torchrec's buffers, and CUDA's kernels
            for logits, labels in learner.score(batches[:2]):
                metrics.update(logits, labels)
        scored = learner.score(batches)
        metrics = TaskMetrics((), "cuda")
        with _refusing_to_wait():
            with pytest.raises(RuntimeError, match="synchroniz"):
                torch.ones(3, device="cuda").cpu()
            for logits, labels in scored:
                metrics.update(logits, labels)
        assert metrics.compute()["samples"] == sum(map(len, batches))


def test_the_scores_are_those_of_the_cpu(tmp_path: Path) -> None:
    batches = [_batch(size, tables=4, rows=500, seed=size) for size in (300, 300, 1, 77)]
    scores = {}
    for device in ("cpu", "cuda"):
        with _learner(tmp_path, device, tables=4, rows=500, dim=16) as learner:
            pairs = list(learner.score(batches))
            scores[device] = torch.cat([logits.float().cpu() for logits, _ in pairs])
            assert torch.equal(
                torch.cat([labels.cpu() for _, labels in pairs]),
                torch.cat([batch.labels for batch in batches]),
            )
    torch.testing.assert_close(scores["cuda"], scores["cpu"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [0.03, 0.26])
def test_the_metrics_of_a_day_of_criteo(rate: float) -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    logits = 1.5 * torch.randn(DAY_ROWS, device="cuda", generator=generator) - 3
    labels = (torch.rand(DAY_ROWS, device="cuda", generator=generator) < rate).float()
    seconds = []
    for _ in range(2):
        metrics = BinaryMetrics("cuda")
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, started = torch.cuda.memory_allocated(), time.perf_counter()
        for scores, truth in zip(logits.split(BATCH), labels.split(BATCH), strict=True):
            metrics.update(scores, truth)
        torch.cuda.synchronize()
        collected = time.perf_counter()
        found = metrics.compute()
        seconds.append((collected - started, time.perf_counter() - collected))
        taken = torch.cuda.max_memory_allocated() - before
    on_cpu = BinaryMetrics()
    on_cpu.update(logits.cpu(), labels.cpu())
    started = time.perf_counter()
    expected = on_cpu.compute()
    cpu_s = time.perf_counter() - started
    print(
        f"\n{DAY_ROWS:,} scores, {rate:.0%} positive, on {torch.cuda.get_device_name()}: collected in "
        f"{seconds[-1][0]:.3f} s, metrics in {seconds[-1][1]:.3f} s (first time {seconds[0][1]:.3f} s), "
        f"{taken / 1e9:.2f} GB; the CPU's metrics {cpu_s:.3f} s"
    )
    assert found["auc"] == expected["auc"]
    assert found == pytest.approx(expected, rel=1e-11)
    assert sum(seconds[-1]) < TARGET_S


def test_a_day_of_criteo_is_evaluated_in_seconds(tmp_path: Path) -> None:
    """One batch is scored again and again: reading is not in the time, but layout, pinning and copies are."""
    batch = _batch(BATCH, tables=26, rows=100_000)
    count = -(-DAY_ROWS // BATCH)
    with _learner(
        tmp_path, "cuda", tables=26, rows=100_000, dim=128, precision="bf16", read_ahead=2
    ) as learner:
        for _ in learner.score(repeat(batch, 3)):
            pass
        torch.cuda.synchronize()
        started = time.perf_counter()
        metrics = TaskMetrics((), "cuda")
        for logits, labels in learner.score(repeat(batch, count)):
            metrics.update(logits, labels)
        torch.cuda.synchronize()
        scored = time.perf_counter()
        found = metrics.compute()
        ended = time.perf_counter()
    rows, seconds = count * BATCH, scored - started
    print(
        f"\n{rows:,} rows in {ended - started:.2f} s on {torch.cuda.get_device_name()}: scored in "
        f"{seconds:.2f} s ({rows / seconds / 1e6:.1f} M rows/s), metrics in {ended - scored:.2f} s"
    )
    assert found["samples"] == rows
