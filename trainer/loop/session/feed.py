"""The batches of the steps that are left, in order, each checked before its step."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainer.base.errors import DatasetError
from trainer.data.checks import spell_ids
from trainer.data.device.checks import DeviceChecks
from trainer.data.device.stream import DeviceStream
from trainer.data.source import ArraySource, EpochPart
from trainer.report.late import LateCopy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from trainer.base.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.checks import BatchChecks
    from trainer.data.source import SampleSource
    from trainer.loop.learner import Learner
    from trainer.loop.progress import Progress


class BadBatchError(DatasetError):
    """A batch with bad values; the session completes its message with the last checkpoint."""


class _Place(NamedTuple):
    """Where a step begins."""

    epoch: int
    position: int


class _Flag(NamedTuple):
    """Whether a step's batch is bad, on the device."""

    step: int
    place: _Place
    is_bad: Tensor


def input_device(config: TrainerConfig, dataset: SampleSource, learner: Learner) -> torch.device | None:
    """Return the device on which batches are made from rows; None: they are made on the CPU.

    What works on ids on the CPU needs them there: sequences, drawn negatives and managed tables.
    """
    device = learner.world.device
    if config.device_input == "off" or device.type != "cuda" or not isinstance(dataset, ArraySource):
        return None
    works_on_ids = learner.shape.places or learner.managed.tables or learner.make_input.negatives is not None
    return None if works_on_ids else device


class BatchFeed:
    """Reads the part of the training data that one of `ranks` trains on.

    With a `device`, batches are made there; only a source of arrays can be read like this.
    """

    def __init__(
        self,
        config: TrainerConfig,
        dataset: SampleSource,
        checks: BatchChecks,
        *,
        rank: int,
        ranks: int,
        device: torch.device | None = None,
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._checks = checks
        self._rank = rank
        self._ranks = ranks
        self._device = device
        self._device_checks = None if device is None else DeviceChecks(checks, device)
        self._flags: deque[_Flag] = deque()  # those of the steps since the last `confirm`, and ahead of it
        self._asked: list[tuple[list[_Flag], LateCopy]] = []  # on their way from the device

    def batches(self, progress: Progress, count: int) -> Iterator[Batch]:
        """Yield at most `count` batches, from the position of `progress` when the first one is read.

        Raises:
            BadBatchError: ahead of its step, when the batch is read; of batches that are made on a device,
                `confirm` raises it.
        """
        return self._checked(islice(self._left(progress), count), progress)

    def confirm(self, step: int, *, now: bool) -> None:
        """Check that the batches up to this step were good.

        Args:
            step: the number of the newest step.
            now: check all, which waits for the device. Otherwise those since the last call are left for the
                next one.

        Raises:
            BadBatchError: one was not.
        """
        flags: list[_Flag] = []
        while self._flags and self._flags[0].step <= step:
            flags.append(self._flags.popleft())
        if flags:
            self._asked.append((flags, LateCopy(torch.stack([each.is_bad for each in flags]))))
        split = len(self._asked) - (0 if now or not flags else 1)
        read, self._asked = self._asked[:split], self._asked[split:]
        for asked, found in read:
            for flag, is_bad in zip(asked, found.wait().tolist(), strict=True):
                if is_bad:
                    self._explain(flag)

    def _left(self, progress: Progress) -> Iterator[tuple[_Place, Batch]]:
        """Yield all batches that are left."""
        # Read ahead of the steps by a thread: `progress` changes meanwhile, so it is read once, at the start.
        start = progress.position
        for epoch in range(progress.epoch, self._config.num_epochs):
            for batch in self._epoch(_Place(epoch, start)):
                yield _Place(epoch, start), batch
                start += batch.global_size
            start = 0

    def _epoch(self, place: _Place, *, device: bool = True) -> Iterable[Batch]:
        """Return the batches from a place to the end of its epoch."""
        part = EpochPart(
            batch_size=self._config.batch_size,
            rank=self._rank,
            world_size=self._ranks,
            seed=self._config.seed,
            epoch=place.epoch,
            start_sample=place.position,
            shuffle=self._config.shuffle,
        )
        if device and self._device is not None and isinstance(self._dataset, ArraySource):
            return DeviceStream(self._dataset.split("train"), self._device, **part)
        return self._dataset.batches("train", **part)

    def _checked(self, batches: Iterable[tuple[_Place, Batch]], progress: Progress) -> Iterator[Batch]:
        """Yield batches after their checks; BadBatchError names the step and the samples of a bad one.

        This runs ahead of the steps, so the session adds the last good checkpoint when the step is reached.
        """
        for number, (place, batch) in enumerate(batches, progress.step + 1):
            if self._device_checks is None:
                yield self._check(batch, number)
                continue
            cleaned, is_bad = self._device_checks(batch)
            if is_bad is not None:
                self._flags.append(_Flag(number, place, is_bad))
            yield cleaned

    def _check(self, batch: Batch, number: int) -> Batch:
        try:
            return self._checks(batch)
        except DatasetError as error:
            ids = spell_ids(batch.sample_ids.tolist())
            raise BadBatchError(f"step {number}: {error} (its batch: {ids}") from None

    def _explain(self, flag: _Flag) -> None:
        """Read a bad batch again, on the CPU, which finds what is wrong with it."""
        again = next(iter(self._epoch(flag.place, device=False)))
        self._check(again, flag.step)
        raise BadBatchError(
            f"step {flag.step}: {self._device} found a value out of range in the batch, but not when it was "
            "read again; look for faults of this machine's memory, disk and GPU (its batch: "
            f"{spell_ids(again.sample_ids.tolist())}"
        )
