"""The speed of `python -m trainer`, by the lines that it writes itself."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.work import Work

LOGGED = 10  # steps a line
DATA = "trainer.data.formats.synthetic:made_up"


def measure(work: Work, *, precision: str, threads: int) -> float:
    """Return samples/s: the median line after the first checkpoint; reading, checks and digests are in it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "dataset": DATA,
            "output_dir": folder,
            "num_embeddings": work.rows,
            "num_iterations": work.settling_steps + work.timed_steps,
            "log_interval": LOGGED,
            "precision": precision,
            "threads": threads,
            "batch_size": work.batch_size,
            "embedding_dim": work.embedding_dim,
            "dense_arch_layer_sizes": _joined(work.dense_arch_layer_sizes),
            "over_arch_layer_sizes": _joined(work.over_arch_layer_sizes),
            "learning_rate": work.learning_rate,
            "dense_learning_rate": work.learning_rate,
            "dense_optimizer": "adagrad",
            "lr_decay": "none",
            "model_digest": "false",
            "eval_batch_size": 65_536,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "trainer", *words], check=True, stdout=subprocess.DEVNULL)
        text = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    return statistics.median(line["samples_per_s"] for line in lines[work.settling_steps // LOGGED :])


def _joined(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))
