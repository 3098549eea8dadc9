"""Where a step's time goes, before and after: torchrec's golden_training, and the trainer, by kind of work.

    python -m benchmarks.step_profile [--write]

torch's profiler over the same work (benchmarks/work.py), one thread, fp32; a line of the table is the time
spent in operations of one kind themselves, not in what they call. The profiler slows small operations.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe_machine, today
from benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parent / "results"
STEPS = 40
CANDIDATES = {"golden": "golden_training", "fbgemm": "trainer, fbgemm's tables", "ours": "trainer"}
KINDS = {  # the first line with a word of an operation's name has it
    "tables: update": ("embedding_backward", "_LookUpBackward"),
    "tables: look-up": ("split_embedding", "_LookUp", "bounds_check", "lookup]"),
    "matrix products": ("::mm", "addmm", "bmm", "linear", "matmul"),
    "activations and biases": ("relu", "threshold", "::sum", "_MLPFunction"),
    "copies, indices, concatenations": ("copy_", "index", "cat", "stack", "Dot", "clone", "zero", "fill"),
    "dense optimizer": ("Optimizer", "adagrad", "_foreach", "addc", "sqrt", "div"),
}
REST = "all else: torchrec, autograd, Python's operations"


def main(argv: Sequence[str] | None = None) -> None:
    """Profile, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write results/profile-DATE.md")
    parser.add_argument("--candidate", choices=CANDIDATES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.candidate:
        print(json.dumps(profile(arguments.candidate)))
        return
    table = format_table({name: _fresh_process(name) for name in CANDIDATES})
    print(table)
    if arguments.write:
        (RESULTS / f"profile-{today()}.md").write_text(table + "\n", encoding="utf-8")


def profile(candidate: str) -> dict[str, float]:
    """Milliseconds a step by kind of work."""
    import torch  # noqa: PLC0415 - the parent process needs no torch

    torch.set_num_threads(1)
    work = Work()
    if candidate == "golden":
        from benchmarks.golden import open_pipeline  # noqa: PLC0415 - likewise

        with open_pipeline(work) as step:
            return _profile(step, work.warmup_steps)
    from benchmarks.ours import open_learner  # noqa: PLC0415 - likewise

    kernel = "fbgemm" if candidate == "fbgemm" else "auto"
    with open_learner(work, table_kernel=kernel) as (learner, stream):
        steps = learner.pipeline.steps(islice(stream, work.warmup_steps + STEPS + 1), 0)
        return _profile(lambda: next(steps), work.warmup_steps)


def _profile(step: Callable[[], Any], warmup: int) -> dict[str, float]:
    from torch.profiler import ProfilerActivity  # noqa: PLC0415 - likewise
    from torch.profiler import profile as record  # noqa: PLC0415 - likewise

    for _ in range(warmup):
        step()
    with record(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(STEPS):
            step()
    times = dict.fromkeys((*KINDS, REST), 0.0)
    for event in recorded.key_averages():
        times[_kind(event.key)] += event.self_cpu_time_total / 1e3 / STEPS
    return times


def _kind(operation: str) -> str:
    return next((kind for kind, words in KINDS.items() if any(w in operation for w in words)), REST)


def format_table(figures: dict[str, dict[str, float]]) -> str:
    """A Markdown page: milliseconds a step by kind of work, and each kind's share."""
    lines = [
        "# Where a step's time goes, milliseconds",
        "",
        f"One thread, fp32, batch {Work().batch_size}, {STEPS} steps, profiled by torch; shares in brackets.",
        "",
        f"| | {' | '.join(CANDIDATES.values())} |",
        "| --- | ---: | ---: | ---: |",
    ]
    totals = {name: sum(times.values()) for name, times in figures.items()}
    for kind in (*KINDS, REST):
        cells = [
            f"{figures[name][kind]:.1f} ({figures[name][kind] / totals[name]:.0%})" for name in CANDIDATES
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines.append(f"| all | {' | '.join(f'{totals[name]:.1f}' for name in CANDIDATES)} |")
    return "\n".join([*lines, "", f"Measured {today()}. {describe_machine()}"])


def _fresh_process(candidate: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.step_profile", "--candidate", candidate]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


if __name__ == "__main__":
    main()
