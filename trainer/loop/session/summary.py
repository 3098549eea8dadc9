"""The figures of a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.loop.session.evaluation import target_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.base.config import TrainerConfig
    from trainer.loop.paths import ComputePaths
    from trainer.loop.progress import Progress
    from trainer.loop.saving import Saving
    from trainer.loop.session.course import AttemptClock
    from trainer.report.goodput import GoodputParts


def make_summary(
    config: TrainerConfig,
    progress: Progress,
    clock: AttemptClock,
    saving: Saving,
    *,
    goodput: GoodputParts,
    metrics: Mapping[str, Any] | None,
    paths: ComputePaths,
) -> dict[str, Any]:
    """Return the fields of summary.json other than the run's status and digests."""
    quality = {name: (metrics or {}).get(name) for name in ("auc", "logloss", "ne", "calibration")}
    if metrics is not None and "tasks" in metrics:
        quality["tasks"] = metrics["tasks"]
    quality |= {name: each for name, each in (metrics or {}).items() if name.startswith("recall_at_")}
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
        "paths": paths.to_json(),
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
