"""The batches of the steps that are left, in order, each checked before its step."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from trainer.base.errors import DatasetError
from trainer.data.checks import spell_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.base.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.checks import BatchChecks
    from trainer.data.source import SampleSource
    from trainer.loop.progress import Progress


class BadBatchError(DatasetError):
    """A batch with bad values; the session completes its message with the last checkpoint."""


class BatchFeed:
    """Reads the part of the training data that one of `ranks` trains on."""

    def __init__(
        self, config: TrainerConfig, dataset: SampleSource, checks: BatchChecks, *, rank: int, ranks: int
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._checks = checks
        self._rank = rank
        self._ranks = ranks

    def batches(self, progress: Progress, count: int) -> Iterator[Batch]:
        """Yield at most `count` batches, from the position of `progress` when the first one is read.

        Raises:
            BadBatchError: ahead of its step, when the batch is read.
        """
        return self._checked(islice(self._left(progress), count), progress)

    def _left(self, progress: Progress) -> Iterator[Batch]:
        """Yield all batches that are left."""
        # Read ahead of the steps by a thread: `progress` changes meanwhile, so it is read once, at the start.
        start = progress.position
        for epoch in range(progress.epoch, self._config.num_epochs):
            yield from self._dataset.batches(
                "train",
                batch_size=self._config.batch_size,
                rank=self._rank,
                world_size=self._ranks,
                seed=self._config.seed,
                epoch=epoch,
                start_sample=start,
                shuffle=self._config.shuffle,
            )
            start = 0

    def _checked(self, batches: Iterable[Batch], progress: Progress) -> Iterator[Batch]:
        """Yield batches after their checks; BadBatchError names the step and the samples of a bad one.

        This runs ahead of the steps, so the session adds the last good checkpoint when the step is reached.
        """
        for number, batch in enumerate(batches, progress.step + 1):
            try:
                yield self._checks(batch)
            except DatasetError as error:
                ids = spell_ids(batch.sample_ids.tolist())
                raise BadBatchError(f"step {number}: {error} (its batch: {ids}") from None
