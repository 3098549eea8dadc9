"""The cost of the tables in a step, compared with moving the same rows by torch: gather, then scatter-add.

    python -m benchmarks.embedding [--rounds N] [--write]

The embedding part is torchrec's sharded collection as the trainer runs it: ids in, sums out, gradients
in, rows and optimizer states updated, with all that surrounds the kernels. It is driven alone, with
gradients made before, in the layout of the interaction's backward. Kinds and the reference alternate within a
process, with one thread; figures are medians over all turns of all rounds' processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine, today
from benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
KERNELS = {
    "native": "trainer, C kernels (table_kernel native)",
    "torch": "trainer, torch operations (table_kernel torch)",
    "fbgemm": "torchrec with fbgemm's CPU kernel (table_kernel fbgemm)",
}
TURNS = 40


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/embedding-DATE.md")
    parser.add_argument("--kernel", choices=KERNELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.kernel:
        print(json.dumps(measure(arguments.kernel)))
        return
    rounds = [{kernel: _fresh_process(kernel) for kernel in KERNELS} for _ in range(arguments.rounds)]
    table = format_table(rounds)
    print(table)
    if arguments.write:
        (RESULTS / f"embedding-{today()}.md").write_text(table + "\n", encoding="utf-8")


def measure(kernel: str) -> dict[str, float]:
    """Median seconds: of the part forward and backward, and of the reference's two halves."""
    import torch  # noqa: PLC0415 - the parent process needs no torch
    from torchrec.distributed.model_parallel import get_unwrapped_module  # noqa: PLC0415 - likewise

    from benchmarks.ours import open_learner  # noqa: PLC0415 - likewise

    work = Work()
    times: dict[str, list[float]] = {"forward": [], "backward": [], "gather": [], "scatter": []}
    with open_learner(work, table_kernel=kernel) as (learner, stream):
        model = get_unwrapped_module(learner.model).model
        tables = model.look_up or model.embeddings
        flat = torch.empty(work.tables * work.rows, work.embedding_dim).uniform_(-0.01, 0.01)
        starts = (torch.arange(work.tables) * work.rows)[:, None]
        out = torch.empty(work.batch_size * work.tables, work.embedding_dim)
        wide = torch.randn(work.batch_size, (work.tables + 1) * work.embedding_dim) * 1e-6
        gradient, changes = wide[:, work.embedding_dim :], torch.randn(out.shape) * 1e-6
        for _, batch in zip(range(TURNS), stream, strict=False):
            inputs = learner.make_input(batch).sparse
            rows = (batch.sparse + starts).t().reshape(-1)
            clock = time.perf_counter()
            values = tables(inputs).values()
            times["forward"].append(time.perf_counter() - clock)
            clock = time.perf_counter()
            values.backward(gradient)
            times["backward"].append(time.perf_counter() - clock)
            clock = time.perf_counter()
            torch.index_select(flat, 0, rows, out=out)
            times["gather"].append(time.perf_counter() - clock)
            clock = time.perf_counter()
            flat.index_add_(0, rows, changes)
            times["scatter"].append(time.perf_counter() - clock)
    return {name: statistics.median(seconds[TURNS // 4 :]) for name, seconds in times.items()}


def format_table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """A Markdown page: milliseconds a step, ratios, work and machine."""
    work = Work()
    description = (
        f"{work.tables} tables x {work.rows} rows x {work.embedding_dim} fp32, RowWiseAdagrad, batch "
        f"{work.batch_size}, one uniform id a feature ({work.tables * work.batch_size} rows); 1 thread. "
        f"Medians of {len(rounds)} rounds of fresh processes, {TURNS} turns each, beside gather "
        "(index_select) and scatter-add (index_add_) of the same rows in the same turns."
    )
    columns = ("embedding part", "look-up", "backward and update", "gather", "scatter-add", "ratio")
    lines = [
        "# What the tables cost in a step, milliseconds",
        "",
        description,
        "",
        f"| {' | '.join(columns)} | lowest to highest round |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kernel, label in KERNELS.items():
        runs = [figures[kernel] for figures in rounds]
        ratios = [(each["forward"] + each["backward"]) / (each["gather"] + each["scatter"]) for each in runs]
        cells = [
            f"{1e3 * statistics.median(each[name] for each in runs):.2f}"
            for name in ("forward", "backward", "gather", "scatter")
        ]
        lines.append(
            f"| {label} | {' | '.join(cells)} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join([*lines, "", f"Measured {today()}. {describe_machine()}"])


def _fresh_process(kernel: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.embedding", "--kernel", kernel]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
