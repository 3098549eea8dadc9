"""How far a run has come: what a checkpoint keeps besides the model, counted in samples, not in batches."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where the run stands; survives restarts, and does not depend on the number of ranks."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # samples of this epoch that were trained on, by all ranks together
    samples: int = 0  # all samples trained on, all epochs
    attempt: int = 0  # 0, then one more each time the run is started again
    started: float = field(default_factory=time.time)  # unix time of the first attempt
    productive_s: float = 0.0  # time in steps whose results were kept
    training_s: float = 0.0  # wall time from the first step on, all attempts; as of the last checkpoint
    target: dict[str, float] | None = None  # when target_auc was first reached: auc, step, samples, seconds
    checkpoint_count: int = 0
    checkpoint_s: float = 0.0

    def advance(self, samples: int, epoch_samples: int, seconds: float) -> None:
        """Count a step of `samples`, of which an epoch has `epoch_samples`."""
        self.step += 1
        self.samples += samples
        self.position += samples
        self.productive_s += seconds
        if self.position >= epoch_samples:
            self.epoch, self.position = self.epoch + 1, 0

    @property
    def goodput(self) -> float:
        """The part of all time since the first start that went into steps whose results were kept."""
        return self.productive_s / max(time.time() - self.started, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any], *, restarts: int) -> Self:
        """Go on from a checkpoint; `restarts` is how often the launcher says it started this again."""
        return cls(**values | {"attempt": max(int(values["attempt"]) + 1, restarts)})
