"""The figures of a whole run, and the clocks of an attempt that they are made of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainer.evaluation import target_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.config import TrainerConfig
    from trainer.goodput import Goodput
    from trainer.progress import Progress
    from trainer.saving import Saving


class AttemptClock:
    """The time of this attempt, which begins where `progress` stands now."""

    def __init__(self, started: float, progress: Progress) -> None:
        self._started = started
        self._training_before_s = progress.training_s
        self._samples_before = progress.samples
        self._productive_before_s = progress.productive_s
        self._first_step = time.perf_counter()

    def begin_steps(self) -> None:
        """The first step begins."""
        self._first_step = time.perf_counter()

    @property
    def wall_s(self) -> float:
        """Since this attempt began."""
        return time.perf_counter() - self._started

    @property
    def training_s(self) -> float:
        """Wall time from the first step on; of earlier attempts, up to the checkpoint gone on from."""
        return self._training_before_s + time.perf_counter() - self._first_step

    def samples_per_s(self, progress: Progress) -> float:
        """Of this attempt's steps alone."""
        samples = progress.samples - self._samples_before
        return samples / max(progress.productive_s - self._productive_before_s, 1e-9)


def make_summary(
    config: TrainerConfig,
    progress: Progress,
    clock: AttemptClock,
    saving: Saving,
    *,
    goodput: Goodput,
    metrics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What summary.json says besides the run's status and digests."""
    quality = {name: (metrics or {}).get(name) for name in ("auc", "logloss", "ne", "calibration")}
    return {
        "step": progress.step,
        "epochs": progress.epoch + progress.position / saving.dataset.train.rows,
        "samples_seen": progress.samples,
        **quality,
        "samples_per_s": clock.samples_per_s(progress),
        "wall_s": clock.wall_s,
        "goodput": goodput.fraction,
        "goodput_parts": goodput.to_json(),
        **_target_figures(config, progress),
        "restarts": progress.attempt,
        "checkpoint": {
            "count": progress.checkpoint_count,
            "seconds": progress.checkpoint_s,
            "bytes": saving.bytes,
            "last_step": saving.step,
        },
        "world_size": saving.world.size,
    }


def _target_figures(config: TrainerConfig, progress: Progress) -> dict[str, Any]:
    reached = target_reached(config, progress)
    target = (progress.target or {}) if reached else {}
    return {
        "target_auc": config.target_auc,
        "target_reached": reached if config.target_auc else None,
        "time_to_target_s": target.get("seconds"),
        "steps_to_target": target.get("step"),
        "samples_to_target": target.get("samples"),
    }
