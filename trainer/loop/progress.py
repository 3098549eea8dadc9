"""The progress of a run, counted in samples instead of batches; checkpoints keep it besides the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from cloudrec_contract.safe_json import record_of


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of a run over all attempts; it does not depend on the number of ranks."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # samples of this epoch that were trained on, by all ranks together
    samples: int = 0  # all samples trained on, all epochs
    attempt: int = 0  # 0, then one more each time the run is started again
    productive_s: float = 0.0  # time in steps whose results were kept
    training_s: float = 0.0  # wall time from the first step on, all attempts; as of the last checkpoint
    target: dict[str, float] | None = None  # when target_auc was first reached: auc, step, samples, seconds
    checkpoint_count: int = 0
    checkpoint_s: float = 0.0

    def advance(self, samples: int, epoch_samples: int, seconds: float) -> None:
        """Count a step of `samples`; an epoch has `epoch_samples`."""
        self.step += 1
        self.samples += samples
        self.position += samples
        self.productive_s += seconds
        if self.position >= epoch_samples:
            self.epoch, self.position = self.epoch + 1, 0

    def to_json(self) -> dict[str, Any]:
        """Return the values for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: object, *, restarts: int) -> Self:
        """Return the progress of a new attempt from a checkpoint.

        Args:
            values: what `to_json` returned.
            restarts: torchrun's restarts.

        Raises:
            ValueError: they are none of a run.
        """
        before = record_of(cls, values, where="progress")
        if min(before.step, before.epoch, before.position, before.samples, before.attempt) < 0:
            raise ValueError(f"progress has a negative count: {before}")
        return replace(before, attempt=max(before.attempt + 1, restarts))
