"""The metrics of one label, or of each of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.report.metrics import BinaryMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from trainer.report.metrics import Group

_MEANS = ("auc", "logloss", "ne", "calibration")


class TaskMetrics:
    """Collects logits and labels [B], or of several tasks [B, tasks], where the label -1 is missing."""

    def __init__(self, tasks: Sequence[str], device: torch.device | str = "cpu") -> None:
        """`tasks` are the names of several labels; empty for one."""
        self._one = BinaryMetrics(device)
        self._each = {task: BinaryMetrics(device) for task in tasks}

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        if not self._each:
            self._one.update(logits, labels)
        for place, metrics in enumerate(self._each.values()):
            metrics.update(logits[:, place], labels[:, place])

    def compute(self, group: Group = None) -> dict[str, Any]:
        """Return the metrics over the samples of all ranks; collective, and equal on all ranks.

        Those of one label are BinaryMetrics'. Of several, `tasks` has them by name, each without the samples
        whose label is missing. The others are means over the tasks (None if one is undefined), and for
        samples and positives the sums.

        Raises:
            NonFiniteLossError: on all ranks, if a score on any rank is NaN or infinite.
        """
        if not self._each:
            return self._one.compute(group)
        found = {task: metrics.compute(group) for task, metrics in self._each.items()}
        every = found.values()
        means = {name: _mean([each[name] for each in every]) for name in _MEANS}
        sums = {name: sum(each[name] or 0 for each in every) for name in ("samples", "positives")}
        return {**means, **sums, "tasks": found}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
