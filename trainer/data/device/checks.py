"""The checks of batches that were made on a device, without waiting for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trainer.data.device.lane import lane_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from trainer.data.batch import Batch
    from trainer.data.checks import BatchChecks


class DeviceChecks:
    """Finds what trainer.data.checks.BatchChecks refuses, as a flag on the device.

    The step of a bad batch runs before the flag is read, so its bad values are replaced by zeros: an id out
    of range would otherwise make a kernel read other memory, and a loss that is not finite would end the
    run with another message on the other ranks.
    """

    def __init__(self, checks: BatchChecks, device: torch.device) -> None:
        self._lane = lane_of(device)
        self._wraps = checks.wraps
        self._looks = checks.looks
        self._has_tasks = bool(checks.tasks)
        self._limits = checks.limits.to(device)
        self._may_lack = checks.may_lack.to(device)
        self._found: Tensor | None = None  # by `stream`: bool []

    def __call__(self, batch: Batch) -> tuple[Batch, Tensor | None]:
        """Return the batch with its ids modulo the tables' rows if that is set, and whether it is bad.

        The flag is a bool [], or None if there is nothing to look for.
        """
        if not (self._wraps or self._looks):
            return batch, None
        with self._lane.work():
            if self._wraps:
                batch = replace(batch, sparse=torch.remainder(batch.sparse, self._limits_of(batch)))
            return self._cleaned(batch) if self._looks and len(batch) else (batch, None)

    def stream(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield every batch with good values only; `has_failed` says whether all were."""
        for batch in batches:
            cleaned, is_bad = self(batch)
            if is_bad is not None:
                with self._lane.work():
                    self._found = is_bad if self._found is None else self._found | is_bad
            yield cleaned

    def has_failed(self) -> bool:
        """Whether a batch of `stream` was bad; this waits for the device."""
        with self._lane.work():
            return self._found is not None and bool(self._found)

    def _cleaned(self, batch: Batch) -> tuple[Batch, Tensor]:
        bad = {
            "sparse": (batch.sparse < 0) | (batch.sparse >= self._limits_of(batch)),
            "dense": ~torch.isfinite(batch.dense),
            "labels": (batch.labels != 0) & (batch.labels != 1),
        }
        if self._has_tasks:
            bad["labels"] &= ~(self._may_lack & (batch.labels == -1))
        if batch.id_weights is not None:
            bad["id_weights"] = ~torch.isfinite(batch.id_weights)
        if batch.weights is not None:
            bad["weights"] = ~torch.isfinite(batch.weights) | (batch.weights < 0)
        clean = {name: getattr(batch, name).masked_fill(places, 0) for name, places in bad.items()}
        flag = torch.stack([places.any() for places in bad.values()]).any()
        return replace(batch, **clean), flag

    def _limits_of(self, batch: Batch) -> Tensor:
        """Return the exclusive limit of each id, in a shape that broadcasts to that of the batch's ids."""
        if batch.lengths is None:
            return self._limits
        counts = batch.lengths.sum(dim=1)
        return self._limits.flatten().repeat_interleave(counts, output_size=batch.sparse.shape[0])
