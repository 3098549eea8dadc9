"""The parts of a run that do not change during an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.data.source import SampleSource
    from trainer.loop.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The configuration, ranks, data and learner; the learner's weights change, the object does not."""

    config: TrainerConfig
    world: World
    dataset: SampleSource
    learner: Learner
