"""How long the metrics of an evaluation take, beside scikit-learn's on the same scores.

    python -m benchmarks.evaluation [--scores N] [--write]

Ours are AUC, logloss, normalized entropy and calibration together; scikit-learn's are roc_auc_score and
log_loss. Both are exact, on one thread and on all cores; the median of some rounds, in turns. With a GPU, the
metrics of the same scores there, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.machine import describe_machine, today
from trainer.report.metrics import BinaryMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

RESULTS = Path(__file__).parent / "results"
RATES = (0.03, 0.26)  # of positives: Criteo's terabyte, and its display challenge
ROUNDS = 3
BATCH = 65_536


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", type=int, default=5_000_000)
    parser.add_argument("--write", action="store_true", help="write results/evaluation-DATE.md")
    arguments = parser.parse_args(argv)
    lines = [
        f"{arguments.scores:,} scores; median of {ROUNDS} rounds.",
        "",
        "| positives | where | ours, scores/s | scikit-learn, scores/s | ratio |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for rate in RATES:
        lines += _rows(arguments.scores, rate)
    page = "# Metrics of an evaluation\n\n" + "\n".join(lines)
    page += f"\n\nMeasured {today()}. {describe_machine()}"
    print(page)
    if arguments.write:
        (RESULTS / f"evaluation-{today()}.md").write_text(page + "\n", encoding="utf-8")


def _rows(count: int, rate: float) -> list[str]:
    generator = torch.Generator().manual_seed(1)
    logits = 1.5 * torch.randn(count, generator=generator) - 3
    labels = (torch.rand(count, generator=generator) < rate).float()
    rows = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)
        rows.append(_row(f"CPU, {threads} threads", rate, logits, labels, "cpu"))
    if torch.cuda.is_available():
        rows.append(_row(torch.cuda.get_device_name(), rate, logits, labels, "cuda"))
    return rows


def _row(name: str, rate: float, logits: Tensor, labels: Tensor, device: str) -> str:
    here, truth = logits.to(device), labels.to(device)
    mine, theirs = [], []
    for _ in range(ROUNDS):
        mine.append(_seconds(lambda: _ours(here, truth)))
        theirs.append(_seconds(lambda: _sklearns(logits, labels)))
    ours, reference = _ours(here, truth), _sklearns(logits, labels)
    if any(abs(a - b) > 1e-12 for a, b in zip(ours, reference, strict=True)):
        raise RuntimeError(f"AUC and logloss are {ours}, and {reference} by scikit-learn")
    speeds = [len(logits) / statistics.median(seconds) for seconds in (mine, theirs)]
    return f"| {rate:.0%} | {name} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {speeds[0] / speeds[1]:.1f} |"


def _ours(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    metrics = BinaryMetrics(logits.device)
    for scores, truth in zip(logits.split(BATCH), labels.split(BATCH), strict=True):
        metrics.update(scores, truth)
    found = metrics.compute()
    return float(found["auc"] or 0), float(found["logloss"] or 0)


def _sklearns(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    truth, scores = labels.numpy(), logits.double()
    return float(roc_auc_score(truth, scores.numpy())), float(log_loss(truth, scores.sigmoid().numpy()))


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
