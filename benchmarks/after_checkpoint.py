"""The speed of steps after a checkpoint, beside those of the same run without one, on a CPU.

    python -m benchmarks.after_checkpoint [--rounds N] [--write]

A checkpoint is written by a forked child. While it lives, each page that a step writes to is copied, and
large pages become small ones; `trainer/base/memory.py` joins them again. Both runs are `python -m trainer`
with the same settings, in turns. Timed are lines long after the child has ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import describe_machine, today

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
_DATA = "trainer.data.formats.synthetic:made_up"
_TABLES, _ROWS, _DIM, _BATCH = 26, 100_000, 32, 512
_LOGGED = 10  # steps a line
_INTERVAL, _STEPS = 400, 1600  # between checkpoints, and all
_SETTLED = 200  # steps after a checkpoint that are not timed: its child process works beside them


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="of both runs [5]")
    parser.add_argument("--write", action="store_true", help="write results/after-checkpoint-DATE.md")
    given = parser.parse_args(argv)
    rounds = [(_run(0), _run(_INTERVAL)) for _ in range(given.rounds)]
    table = format_table(rounds)
    print(table)
    if given.write:
        (RESULTS / f"after-checkpoint-{today()}.md").write_text(table + "\n", encoding="utf-8")


def format_table(rounds: Sequence[tuple[float, float]]) -> str:
    """A Markdown page: both runs, their ratio, the work and the machine."""
    ratios = [after / without for without, after in rounds]
    lines = [
        "# Steps after a checkpoint on a CPU",
        "",
        (
            f"{_TABLES} tables x {_ROWS:,} rows x {_DIM}, batch {_BATCH}, one rank, `python -m trainer`, "
            f"without checkpoints and with one every {_INTERVAL} steps. Timed are the same steps of both, "
            f"at least {_SETTLED} after the last checkpoint, whose child process has ended. The median line "
            f"of {_LOGGED} steps; {len(rounds)} rounds, fresh processes, in turns."
        ),
        "",
        "| Run | ms a step | fastest to slowest |",
        "| --- | ---: | ---: |",
        _line("without a checkpoint", [each for each, _ in rounds]),
        _line("after a checkpoint", [each for _, each in rounds]),
        "",
        (
            f"After / without: {statistics.median(ratios):.3f} in the median round, "
            f"{min(ratios):.3f} to {max(ratios):.3f}."
        ),
        "",
        f"Measured {today()}. {describe_machine()}",
    ]
    return "\n".join(lines)


def _line(label: str, seconds: Sequence[float]) -> str:
    median, low, high = (value * 1e3 for value in (statistics.median(seconds), min(seconds), max(seconds)))
    return f"| {label} | {median:.2f} | {low:.2f} to {high:.2f} |"


def _run(interval: int) -> float:
    """Train with a checkpoint every so many steps, or without; return the seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "dataset": _DATA,
            "output_dir": folder,
            "num_embeddings": _ROWS,
            "embedding_dim": _DIM,
            "batch_size": _BATCH,
            "dense_arch_layer_sizes": f"64,{_DIM}",
            "over_arch_layer_sizes": "64,1",
            "num_iterations": _STEPS,
            "log_interval": _LOGGED,
            "checkpoint_interval": interval,
            "model_digest": "false",
            "eval_batch_size": 65_536,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "trainer", *words], check=True, stdout=subprocess.DEVNULL)
        text = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    records = list(map(json.loads, text.splitlines()))
    saved = [each["step"] for each in records if each["kind"] == "checkpoint" and each["step"] < _STEPS]
    if saved != (list(range(interval, _STEPS, interval)) if interval else []):
        raise SystemExit(f"error: checkpoints were written at other steps: {saved}")
    return statistics.median(
        each["step_s"]
        for each in records
        if each["kind"] == "train" and each["step"] > _INTERVAL and (each["step"] - 1) % _INTERVAL > _SETTLED
    )


if __name__ == "__main__":
    main()
