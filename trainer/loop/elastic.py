"""Batch sizes and step counts that do not change with the number of ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from trainer.base.config import TrainerConfig
    from trainer.loop.progress import Progress


def fit_batch(config: TrainerConfig, ranks: int) -> TrainerConfig:
    """Set `batch_size` to a rank's share of `global_batch_size`; ConfigError if it is not divisible."""
    whole = config.global_batch_size
    if whole is None:
        return config
    if whole % ranks:
        raise ConfigError(
            f"global_batch_size {whole} cannot be shared evenly by {ranks} ranks; take a multiple "
            "of every number of ranks that the run may have, or set batch_size instead"
        )
    return config.model_copy(update={"batch_size": whole // ranks})


class StepCount:
    """The steps of a run at this number of ranks: how many are done, and how many are left.

    If earlier attempts had steps of another size, `done` converts their samples to steps of this size, so
    that the learning rates continue at the same place.
    """

    def __init__(self, config: TrainerConfig, progress: Progress, *, rows: int, ranks: int) -> None:
        batch = config.batch_size * ranks
        epoch_steps = math.ceil(rows / batch)
        self.done = progress.epoch * epoch_steps + math.ceil(progress.position / batch)
        left = config.num_epochs * epoch_steps - self.done
        # The rest of a started epoch may not be a whole number of steps, so it is counted separately.
        if progress.epoch < config.num_epochs and progress.position:
            left = (config.num_epochs - progress.epoch - 1) * epoch_steps + math.ceil(
                (rows - progress.position) / batch
            )
        if config.num_iterations is not None:
            left = min(left, config.num_iterations - progress.step)
        self.left = max(left, 0)
