"""Samples/s of `python -m trainer`, two references and the roofline, on the same work, without a GPU.

    python -m benchmarks.throughput [--rounds N] [--write]

References: torchrec's golden_training and nn.EmbeddingBag with DDP, both re-created here with their own
parts. Every candidate runs in a new process, alternately, so that a slow minute of the machine affects all
equally. A round's figure is its median step; the table gives the median round and the slowest to fastest.
bf16 is measured where the processor has instructions for it; elsewhere it is emulated, and slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine, has_bf16, today
from benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to measure."""

    label: str
    program: str  # golden, ddp, command, ours or roofline
    precision: str = "fp32"
    threads: int = 1

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{self.program}:{self.precision}:{self.threads}"

    @property
    def roofline(self) -> str:
        """The name of the roofline that it is compared with."""
        return f"roofline:{self.precision}:{self.threads}"


def candidates() -> list[Candidate]:
    """Those that this processor can run as intended."""
    fp32 = [
        *(Candidate(f"torchrec golden_training, {_count(n)}", "golden", threads=n) for n in (1, 2)),
        Candidate("nn.EmbeddingBag + DDP, 1 thread", "ddp"),
        *(_command("fp32", threads) for threads in (1, 2)),
        *(_of("fp32", threads) for threads in (1, 2)),
        *(_roof("fp32", threads) for threads in (1, 2)),
    ]
    if not has_bf16():
        return fp32
    return fp32 + [make("bf16", threads) for make in (_command, _of, _roof) for threads in (1, 2)]


def _command(precision: str, threads: int) -> Candidate:
    return Candidate(f"python -m trainer, {precision}, {_count(threads)}", "command", precision, threads)


def _of(precision: str, threads: int) -> Candidate:
    return Candidate(f"its step alone, {precision}, {_count(threads)}", "ours", precision, threads)


def _roof(precision: str, threads: int) -> Candidate:
    return Candidate(f"roofline, {precision}, {_count(threads)}", "roofline", precision, threads)


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/throughput-DATE.md")
    parser.add_argument("--candidate", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.candidate:
        print(json.dumps(run_candidate(*arguments.candidate.split(":"))))
        return
    measured = candidates()
    rounds = [{each.name: _fresh_process(each) for each in measured} for _ in range(arguments.rounds)]
    table = format_table(measured, rounds)
    print(table)
    if arguments.write:
        (RESULTS / f"throughput-{today()}.md").write_text(table + "\n", encoding="utf-8")


def run_candidate(program: str, precision: str, threads: str) -> float:
    """Samples/s by the median step of one process."""
    import torch  # noqa: PLC0415 - the parent process needs no torch

    torch.set_num_threads(int(threads))
    work = Work()
    if program == "command":
        from benchmarks.command import measure as command  # noqa: PLC0415 - likewise

        return command(work, precision=precision, threads=int(threads))
    if program == "golden":
        from benchmarks.golden import measure as golden  # noqa: PLC0415 - likewise

        return work.batch_size / statistics.median(golden(work))
    if program == "ddp":
        from benchmarks.embedding_bag_ddp import measure as ddp  # noqa: PLC0415 - likewise

        return work.batch_size / statistics.median(ddp(work))
    if program == "roofline":
        from benchmarks.roofline import measure as roofline  # noqa: PLC0415 - likewise

        return work.batch_size / roofline(work, precision).step
    from benchmarks.ours import measure as ours  # noqa: PLC0415 - likewise

    return work.batch_size / statistics.median(ours(work, precision=precision, threads=int(threads)))


def format_table(measured: Sequence[Candidate], rounds: Sequence[dict[str, float]]) -> str:
    """A Markdown page: figures, noise, work and machine."""
    work = Work()
    description = (
        f"{work.num_dense} dense features, {work.tables} tables x {work.rows} rows x {work.embedding_dim}, "
        f"one id a feature, batch {work.batch_size}, MLPs {_dashed(work.dense_arch_layer_sizes)} and "
        f"{_dashed(work.over_arch_layer_sizes)}, RowWiseAdagrad and Adagrad, one rank, gloo. "
        f"Medians of {len(rounds)} rounds in turns, fresh processes, {work.timed_steps} steps each; ratios "
        "are medians of each round's. `python -m trainer` has written its first checkpoint by then. "
        "The roofline is a step's matrix products and rows, and nothing else."
    )
    columns = (
        "",
        "samples/s",
        "slowest to fastest",
        "x golden, as many threads",
        "x EmbeddingBag + DDP",
        "of its roofline",
    )
    lines = [
        "# Training throughput on a CPU",
        "",
        description,
        "",
        f"| {' | '.join(columns)} |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(_line(each, rounds) for each in measured),
        "",
    ]
    if not has_bf16():
        lines += ["This processor has no bf16 instructions: torch emulates them, so bf16 is left out.", ""]
    return "\n".join([*lines, f"Measured {today()}. {describe_machine()}"])


def _line(candidate: Candidate, rounds: Sequence[dict[str, float]]) -> str:
    values = [figures[candidate.name] for figures in rounds]

    def ratio(to: str) -> float:
        return statistics.median(figures[candidate.name] / figures[to] for figures in rounds)

    golden, ddp = ratio(f"golden:fp32:{candidate.threads}"), ratio("ddp:fp32:1")
    roofline = f"{ratio(candidate.roofline):.0%}" if candidate.program != "roofline" else ""
    return (
        f"| {candidate.label} | {statistics.median(values):,.0f} | {min(values):,.0f} to {max(values):,.0f} "
        f"| {golden:.2f} | {ddp:.2f} | {roofline} |"
    )


def _dashed(sizes: Sequence[int]) -> str:
    return "-".join(map(str, sizes))


def _fresh_process(candidate: Candidate) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.throughput", "--candidate", candidate.name]
    threads = str(candidate.threads)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
