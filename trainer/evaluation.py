"""Scoring the test split between steps, and noting when the wanted quality was first reached."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.metrics import BinaryMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.config import TrainerConfig
    from trainer.data.checks import BatchChecks
    from trainer.data.source import Source
    from trainer.distributed import World
    from trainer.learner import Learner
    from trainer.progress import Progress
    from trainer.report import Reporter

EVALUATION_BATCHES = 4  # an evaluation batch is this many training batches, unless set


@dataclass(kw_only=True)
class Evaluator:
    """Scores the test split exactly, over all ranks; every method is called by all ranks alike."""

    config: TrainerConfig
    world: World
    dataset: Source
    learner: Learner
    checks: BatchChecks
    reporter: Reporter
    _last: tuple[int, dict[str, Any]] | None = None  # step and metrics of the last evaluation

    def evaluate(self, step: int) -> dict[str, Any]:
        """The metrics after `step` steps, told to the reporter; once a step is enough."""
        if self._last is None or self._last[0] != step:
            started = time.perf_counter()
            result = self._score()
            self.reporter.record("eval", step, **result, seconds=time.perf_counter() - started)
            self.reporter.say(f"step {step}: {_spell(result)}")
            self._last = (step, result)
        return self._last[1]

    def _score(self) -> dict[str, Any]:
        metrics = BinaryMetrics("cpu")
        stream = self.dataset.batches(
            "test",
            batch_size=self.config.eval_batch_size or EVALUATION_BATCHES * self.config.batch_size,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        for logits, labels in self.learner.score(self.checks.stream(stream)):
            metrics.update(logits, labels)
        return metrics.compute(self.world.control)

    def note_target(self, progress: Progress, auc: float | None, training_s: float) -> None:
        """Keep in `progress` when target_auc was first reached: MLPerf's time to train."""
        wanted = self.config.target_auc
        if wanted is None or auc is None or auc < wanted or target_reached(self.config, progress):
            return
        progress.target = {
            "auc": auc,
            "step": progress.step,
            "samples": progress.samples,
            "seconds": training_s,
        }
        self.reporter.say(f"step {progress.step}: target_auc {wanted} reached after {training_s:.1f} s")


def target_reached(config: TrainerConfig, progress: Progress) -> bool:
    """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
    wanted, target = config.target_auc, progress.target
    return wanted is not None and target is not None and target["auc"] >= wanted


def _spell(metrics: Mapping[str, Any]) -> str:
    shown = ("auc", "logloss", "ne", "calibration")
    return "  ".join(f"{name} {metrics[name]:.4f}" for name in shown if metrics.get(name) is not None)
