"""Whole runs of `python -m trainer` on files: one id a feature, and MLPerf's 214 ids a sample."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.work import GpuWork
from benchmarks.input_path import write_days
from tests.trainer.support_dataset import Rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGGED = 10  # steps a line of metrics
SHOWN = 400  # characters of an error


def one_hot(rows: int = 8 << 20, epochs: int = 8) -> dict[str, Any]:
    """Return the figures of a run on a prepared dataset whose ids are uniform in tables of a million rows."""
    work = GpuWork()
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        contents = {
            name: _rows(count, work, random) for name, count in (("train", rows), ("test", rows // 8))
        }
        names = {f"C{place + 1}": work.rows for place in range(work.tables)}
        write_rows(Path(folder) / "data", contents, num_embeddings=names, shard_rows=1 << 20)
        return _run(Path(folder), work, {"dataset_path": Path(folder) / "data", "num_epochs": epochs})


def multi_hot(rows: int = 1 << 20, epochs: int = 4) -> dict[str, Any]:
    """Return those of a run on MLPerf's days, with tables of 100,000 rows."""
    work = GpuWork()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        write_days(Path(folder) / "data", rows)
        return _run(Path(folder), work, {"dataset_path": Path(folder) / "data", "num_epochs": epochs})


def _rows(count: int, work: GpuWork, random: np.random.Generator) -> Rows:
    sparse = random.integers(0, work.rows, (work.tables, count), dtype=np.int32)
    return Rows(
        (sparse[0] % 3 == 0).astype(np.uint8),
        random.random((count, work.num_dense), dtype=np.float32),
        sparse,
    )


def _run(folder: Path, work: GpuWork, named: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "output_dir": folder / "run",
        "precision": "bf16",
        "batch_size": work.batch_size,
        "embedding_dim": work.embedding_dim,
        "dense_arch_layer_sizes": ",".join(map(str, work.dense_arch_layer_sizes)),
        "over_arch_layer_sizes": ",".join(map(str, work.over_arch_layer_sizes)),
        "log_interval": LOGGED,
        **named,
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "trainer", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": (done.stderr or done.stdout)[-SHOWN:]}
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    settled = steps[len(steps) // 2 :]
    evaluated = next(line for line in lines if line["kind"] == "eval")
    summary = json.loads((folder / "run" / "summary.json").read_text())
    return {
        "samples_per_s": [float(line["samples_per_s"]) for line in settled],
        "data_wait_ms": [1e3 * line["data_wait_s"] for line in settled],
        "checkpoint_stall_ms": [1e3 * line["ckpt_stall_s"] for line in settled],
        "evaluation_s": float(evaluated["seconds"]),
        "whole_s": time.perf_counter() - started,
        "steps": steps[-1]["step"],
        "goodput_parts_s": dict(steps[-1]["goodput_parts"]),
        "auc": summary.get("auc"),
    }
