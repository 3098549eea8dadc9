"""What keeps a run the same while the number of its ranks changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.config import TrainerConfig
    from trainer.distributed import World
    from trainer.progress import Progress


def fit_batch(config: TrainerConfig, world: World) -> TrainerConfig:
    """With `global_batch_size`, a rank's share of it as `batch_size`; ConfigError if it cannot be shared."""
    whole = config.global_batch_size
    if whole is None:
        return config
    if whole % world.size:
        raise ConfigError(
            f"global_batch_size {whole} cannot be shared evenly by {world.size} ranks; take a multiple "
            "of every number of ranks that the run may have, or set batch_size instead"
        )
    return config.model_copy(update={"batch_size": whole // world.size})


class Course:
    """The steps of a run at this number of ranks: how many are done, and how many are left.

    Where earlier attempts had steps of another size, `done` counts what they did in this one's steps, so that
    learning rates go on where they were.
    """

    def __init__(self, config: TrainerConfig, progress: Progress, *, rows: int, ranks: int) -> None:
        batch = config.batch_size * ranks
        epoch_steps = math.ceil(rows / batch)
        self.done = progress.epoch * epoch_steps + math.ceil(progress.position / batch)
        left = config.num_epochs * epoch_steps - self.done
        if progress.epoch < config.num_epochs and progress.position:  # a rest may not be of whole steps
            left = (config.num_epochs - progress.epoch - 1) * epoch_steps + math.ceil(
                (rows - progress.position) / batch
            )
        if config.num_iterations is not None:
            left = min(left, config.num_iterations - progress.step)
        self.left = max(left, 0)
