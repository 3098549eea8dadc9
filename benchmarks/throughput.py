"""Samples/s of the trainer beside torchrec's golden_training, on the same work, one thread, no GPU.

    python -m benchmarks.throughput [--rounds N] [--write]

Every candidate runs in a fresh process, in turns, so that a slow minute of the machine hits all alike.
A round's figure is its median step; the table gives the median round and the slowest to fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine
from benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

CANDIDATES = ("golden", "fp32", "bf16")
LABELS = {
    "golden": "torchrec golden_training (fp32)",
    "fp32": "cloudrec trainer, fp32",
    "bf16": "cloudrec trainer, --precision bf16",
}
RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/throughput-DATE.md")
    parser.add_argument("--candidate", choices=CANDIDATES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.candidate:
        print(json.dumps(run_candidate(arguments.candidate)))
        return
    rounds = [{name: _fresh_process(name) for name in CANDIDATES} for _ in range(arguments.rounds)]
    table = format_table(rounds)
    print(table)
    if arguments.write:
        path = RESULTS / f"throughput-{datetime.now(UTC):%Y-%m-%d}.md"
        path.write_text(table + "\n", encoding="utf-8")


def run_candidate(name: str) -> float:
    """Samples/s by the median step of one process."""
    import torch  # noqa: PLC0415 - the parent process needs no torch

    torch.set_num_threads(1)
    work = Work()
    if name == "golden":
        from benchmarks.golden import measure  # noqa: PLC0415 - likewise

        seconds = measure(work)
    else:
        from benchmarks.ours import measure as measure_ours  # noqa: PLC0415 - likewise

        seconds = measure_ours(work, precision=name)
    return work.batch_size / statistics.median(seconds)


def format_table(rounds: Sequence[dict[str, float]]) -> str:
    """A Markdown page: figures, noise, work and machine."""
    work = Work()
    reference = [figures["golden"] for figures in rounds]
    description = (
        f"{work.num_dense} dense features, {work.tables} tables x {work.rows} rows x {work.embedding_dim}, "
        f"one id a feature, batch {work.batch_size}, MLPs {_dashed(work.dense_arch_layer_sizes)} and "
        f"{_dashed(work.over_arch_layer_sizes)}, RowWiseAdagrad and Adagrad, one rank, gloo, 1 thread. "
        f"Medians of {len(rounds)} rounds in turns, fresh processes, {work.timed_steps} steps each."
    )
    lines = [
        "# Training throughput on a CPU",
        "",
        description,
        "",
        "| | samples/s | slowest to fastest round | times golden (median of each round's ratio) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in CANDIDATES:
        values = [figures[name] for figures in rounds]
        ratio = statistics.median(value / golden for value, golden in zip(values, reference, strict=True))
        lines.append(
            f"| {LABELS[name]} | {statistics.median(values):,.0f} | {min(values):,.0f} to {max(values):,.0f} "
            f"| {ratio:.2f} |"
        )
    return "\n".join([*lines, "", f"Measured {datetime.now(UTC):%Y-%m-%d}. {describe_machine()}"])


def _dashed(sizes: Sequence[int]) -> str:
    return "-".join(map(str, sizes))


def _fresh_process(name: str) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.throughput", "--candidate", name]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
