"""Quality: the share of the way from the best linear model's AUC to the teacher's AUC, in fp32 and bf16.

    python -m benchmarks.learning [--seeds N] [--write]

The teacher is that of the tests (tests/trainer/support_teacher.py), so both AUCs are known exactly. Every run
is a separate `python -m trainer`; a second one with --target_auc measures the time from the first step to
95 % of the way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.machine import describe_machine
from tests.trainer.support_gate import SETTINGS
from tests.trainer.support_teacher import SHARD_ROWS, make_lesson
from trainer.loop.setup import lacks_arithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.trainer.support_teacher import Lesson

GOAL = 0.95  # of the way from linear to Bayes
ALIKE = 0.001  # AUC that bf16 may differ from fp32 by
LOOKS = 16  # evaluations over a run on its way to the goal
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, slots=True)
class Result:
    """One seed in one precision."""

    seed: int
    precision: str
    auc: float
    seconds: float  # of the whole run, its evaluation included
    seconds_to_goal: float | None
    samples_to_goal: int | None


def main() -> int:
    """Print the table; with --write, record it; return 1 if bf16 or the share learnt is too low."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write results/learning-DATE.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lesson = make_lesson(Path(folder) / "data", train_rows=5 * SHARD_ROWS, test_rows=30_000)
        results = [
            _measure(Path(folder), lesson, seed, precision)
            for seed in range(arguments.seeds)
            for precision in PRECISIONS
        ]
    report = _report(lesson, results)
    print(report)
    if arguments.write:
        path = Path(__file__).parent / "results" / f"learning-{_today()}.md"
        path.write_text(f"# What the trainer learns, {_today()}\n\n{report}\n", encoding="utf-8")
    worst = min(lesson.gap_closed(result.auc) for result in results)
    return int(worst < GOAL or max(_differences(results)) > ALIKE)


def _measure(folder: Path, lesson: Lesson, seed: int, precision: str) -> Result:
    whole = _run(folder, f"whole-{seed}-{precision}", seed=seed, precision=precision)
    goal = lesson.linear_auc + GOAL * (lesson.bayes_auc - lesson.linear_auc)
    interval = len(lesson.train.labels) * SETTINGS["num_epochs"] // SETTINGS["batch_size"] // LOOKS
    timed = _run(
        folder,
        f"goal-{seed}-{precision}",
        seed=seed,
        precision=precision,
        target_auc=goal,
        eval_interval=interval,
    )
    return Result(
        seed=seed,
        precision=precision,
        auc=whole["auc"],
        seconds=whole["wall_s"],
        seconds_to_goal=timed["time_to_target_s"],
        samples_to_goal=timed["samples_to_target"],
    )


def _run(folder: Path, name: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - values of flags
    """The summary of a run of the trainer."""
    paths = {"dataset_path": folder / "data", "output_dir": folder / name}
    values = {**SETTINGS, "checkpoint_interval": 0, **settings, **paths}
    flags = [word for flag, value in values.items() for word in (f"--{flag}", _spell(value))]
    subprocess.run([sys.executable, "-m", "trainer", *flags], check=True, capture_output=True)
    summary: dict[str, Any] = json.loads((folder / name / "summary.json").read_text(encoding="utf-8"))
    return summary


def _report(lesson: Lesson, results: Sequence[Result]) -> str:
    described = (
        f"{len(lesson.train.labels):,} samples, {SETTINGS['num_epochs']} epochs in batches of "
        f"{SETTINGS['batch_size']}, one thread. Best linear model's AUC {lesson.linear_auc:.4f}, the "
        f"teacher's own {lesson.bayes_auc:.4f}, on {len(lesson.test.labels):,} other samples."
    )
    lines = [
        described,
        "",
        "| seed | precision | AUC | of the way | seconds | to 95 % of the way: seconds | samples |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        *(_line(lesson, result) for result in results),
        "",
        f"bf16 differs from fp32 of the same seed by {max(_differences(results)):.5f} AUC at most.",
    ]
    if lacks_arithmetic("bf16", torch.cpu.get_capabilities()):
        lines += ["", "This processor has no bf16 instructions: torch emulates them, which takes longer."]
    return "\n".join([*lines, "", f"Measured {_today()}. {describe_machine()}"])


def _line(lesson: Lesson, result: Result) -> str:
    closed = lesson.gap_closed(result.auc)
    goal = "not reached | " if result.seconds_to_goal is None else f"{result.seconds_to_goal:.1f} | "
    samples = "" if result.samples_to_goal is None else f"{result.samples_to_goal:,}"
    return (
        f"| {result.seed} | {result.precision} | {result.auc:.4f} | {closed:.1%} | {result.seconds:.1f} "
        f"| {goal}{samples} |"
    )


def _differences(results: Sequence[Result]) -> list[float]:
    """Of bf16 from fp32, by seed."""
    aucs = {(result.seed, result.precision): result.auc for result in results}
    return [abs(aucs[seed, "bf16"] - aucs[seed, "fp32"]) for seed in {seed for seed, _ in aucs}]


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _spell(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    sys.exit(main())
