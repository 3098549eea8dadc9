"""What ten restores from quantised checkpoints cost in AUC, compared with the same run without a stop.

    python -m benchmarks.quantized_restores [--seeds N] [--write]

Each run keeps incremental checkpoints, stops ten times, evenly spread, and resumes each time from what it has
just saved: the tables lose what the coding drops, and training continues from there. A run that stops as
often with exact checkpoints must end with the digest of the run that never stops, so that only the coding
differs. The teacher is that of benchmarks.learning.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe_machine
from tests.trainer.support_gate import SETTINGS
from tests.trainer.support_teacher import SHARD_ROWS, make_lesson
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.loop.session.opening import open_session
from trainer.sharding.digest import model_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.trainer.support_teacher import Lesson
    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World

RESTORES = 10
ALLOWED = 0.0001  # AUC that the restores may cost
CODINGS = ("none", "int8")
UNBROKEN = "unbroken"


@dataclass(frozen=True, slots=True)
class Result:
    """One run's end."""

    seed: int
    coding: str  # or UNBROKEN
    auc: float
    digest: str
    samples: str
    restores: int  # from a checkpoint that was a differential, or differentials merged


def main() -> int:
    """Print the table; with --write, record it; return 1 if a coding or exact ones cost too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write results/quantized-restores-DATE.md")
    arguments = parser.parse_args()
    logging.getLogger("torchrec").setLevel(logging.ERROR)  # its planner warns of every plan
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, join_world("cpu") as world:
        folder = Path(name)
        lesson = make_lesson(folder / "data", train_rows=5 * SHARD_ROWS, test_rows=100_000)
        results = [
            _measure_quietly(folder, world, seed, coding)
            for seed in range(arguments.seeds)
            for coding in (UNBROKEN, *CODINGS)
        ]
    report = _report(lesson, results, minutes=(time.monotonic() - began) / 60)
    print(report)
    if arguments.write:
        path = Path(__file__).parent / "results" / f"quantized-restores-{_today()}.md"
        path.write_text(
            f"# What restores from quantised checkpoints cost, {_today()}\n\n{report}\n", encoding="utf-8"
        )
    costs = [abs(cost) for coding in CODINGS for cost in _costs(results, coding)]
    return int(max(costs) > ALLOWED or not _is_exact(results))


def _measure_quietly(folder: Path, world: World, seed: int, coding: str) -> Result:
    """Measure without the lines that a run prints: two hundred here."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return _measure(folder, world, seed, coding)


def _measure(folder: Path, world: World, seed: int, coding: str) -> Result:
    output = folder / f"{seed}-{coding}"
    values: dict[str, Any] = {
        **SETTINGS,
        "dataset_path": str(folder / "data"),
        "output_dir": str(output),
        "seed": seed,
        "deterministic": True,
        "checkpoint_mode": "incremental",
        "checkpoint_quantization": "none" if coding == UNBROKEN else coding,
    }
    config = make_config(values)
    if coding != UNBROKEN:
        for stop in range(RESTORES):
            _train_and_save(config, world, part=(stop + 1) / (RESTORES + 1))
    with open_session(config, world) as session:
        for step in session.steps():
            session.advance(step)
        return Result(
            seed=seed,
            coding=coding,
            auc=session.evaluate()["auc"],
            digest=model_digest(session.run.learner.state, world.control),
            samples=session.course.seen.merge(world.control).hex(),
            restores=_incremental_saves(output),
        )


def _train_and_save(config: TrainerConfig, world: World, *, part: float) -> None:
    """Continue from the last checkpoint, if there is one, to a part of all steps, and save there."""
    with open_session(config, world) as session:
        last = round(part * session.course.total_steps)
        for step in session.steps():
            session.advance(step)
            if session.course.progress.step == last:
                break
        session.save()


def _incremental_saves(output: Path) -> int:
    records = map(json.loads, (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return sum(record["kind"] == "checkpoint" and record["content"] != "full" for record in records)


def _report(lesson: Lesson, results: Sequence[Result], *, minutes: float) -> str:
    described = (
        f"{len(lesson.train.labels):,} samples, {SETTINGS['num_epochs']} epochs in batches of "
        f"{SETTINGS['batch_size']}, tables of {SETTINGS['embedding_dim']} columns, the weights alone in "
        f"fewer bits. {RESTORES} stops spread over the run, each resumed from its own checkpoint. AUC on "
        f"{len(lesson.test.labels):,} other samples, the teacher's own {lesson.bayes_auc:.5f}. The "
        "learning rate falls to 0 in a line, so there is little left to fix the last restores with, and "
        "about every row is touched, and so coded, between any two."
    )
    proof = (
        "All saw the same samples, and fp32 differentials end with the unbroken run's model, bit for bit."
        if _is_exact(results)
        else "NOT all saw the same samples, or fp32 differentials do NOT end with the unbroken run's model."
    )
    lines = [
        described,
        "",
        "| seed | differentials | restores from one | AUC | beside the unbroken run | same model |",
        "| ---: | --- | ---: | ---: | ---: | --- |",
        *(_line(results, result) for result in results),
        "",
        *(_verdict(results, coding) for coding in CODINGS[1:]),
        proof,
    ]
    return "\n".join([*lines, "", f"Measured {_today()} in {minutes:.1f} minutes. {describe_machine()}"])


def _line(results: Sequence[Result], result: Result) -> str:
    whole = _unbroken(results, result.seed)
    if result.coding == UNBROKEN:
        return f"| {result.seed} | {UNBROKEN} | | {result.auc:.6f} | | |"
    same = "yes" if result.digest == whole.digest else "no"
    coding = "fp32" if result.coding == "none" else result.coding
    cost = result.auc - whole.auc
    return f"| {result.seed} | {coding} | {result.restores} | {result.auc:.6f} | {cost:+.6f} | {same} |"


def _verdict(results: Sequence[Result], coding: str) -> str:
    costs = _costs(results, coding)
    largest = max(map(abs, costs))
    kept = "within" if largest <= ALLOWED else "NOT within"
    return (
        f"{coding}: {statistics.mean(costs):+.6f} on average, {largest:.6f} at most: {kept} {ALLOWED:.4f}.\n"
    )


def _costs(results: Sequence[Result], coding: str) -> list[float]:
    """How much higher its AUC is than that of the run that never stops, per seed."""
    return [result.auc - _unbroken(results, result.seed).auc for result in results if result.coding == coding]


def _is_exact(results: Sequence[Result]) -> bool:
    """Whether all saw the same samples, and exact checkpoints changed nothing."""
    return all(
        result.samples == _unbroken(results, result.seed).samples
        and result.restores == (0 if result.coding == UNBROKEN else RESTORES)
        and (result.coding != "none" or result.digest == _unbroken(results, result.seed).digest)
        for result in results
    )


def _unbroken(results: Sequence[Result], seed: int) -> Result:
    return next(each for each in results if each.seed == seed and each.coding == UNBROKEN)


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


if __name__ == "__main__":
    sys.exit(main())
