"""Freezing the state at a cut and handing it to the background writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.checkpoint.save.background import BackgroundWriter, JobResult
from trainer.checkpoint.save.policy import measure
from trainer.checkpoint.save.snapshot import find_touched, is_frozen_by_fork
from trainer.checkpoint.save.staging import Staging

if TYPE_CHECKING:
    from trainer.base.entry import State
    from trainer.checkpoint.save.saves import Save, SavingOptions, Sizes

_HALF = 1.7  # rows touched in an interval, times those of its first half: below 2, since rows repeat


class Freezer:
    """Freezes this rank's part of a save, by a copy or by a fork, and sends it to the background writer."""

    def __init__(
        self, uri: str, options: SavingOptions, *, rank: int, staging: Staging | None = None
    ) -> None:
        self._uri = uri
        self._options = options
        self._rank = rank
        self._staging = staging or Staging()
        self._writer = BackgroundWriter()
        self._foreseen = False

    def foresee(self, state: State) -> None:
        """See Checkpointer."""
        options = self._options
        if self._foreseen or not options.in_background or options.mode == "full":
            return
        if any(shard.tensor.is_cuda for entry in state.values() for shard in entry.shards):
            return  # tables are streamed, and not copied
        self._foreseen = True
        first_rank = self._rank == 0
        touched = find_touched(state, first_rank=first_rank, since="saved")
        sizes = measure(state, touched, first_rank=first_rank)
        self._staging.prepare(int(min(_HALF * sizes.touched, options.copied_share * sizes.full)))

    def submit(self, save: Save, state: State) -> None:
        """Freeze the state and send it to the writer; a failure to do so becomes the save's answer."""
        job = {
            "uri": self._uri,
            "stem": save.id.stem(save.step, self._rank),
            "quantization": self._options.quantization,
            "near": None if self._options.near is None else self._options.near.to_json(),
            "needed": save.needed,
            "commit": None if save.plan is None else save.plan.to_json(),
        }
        # A fork stops the loop for a time that grows with the process; copies, with the bytes copied.
        fork = save.tables is None and not self._is_little(save.sizes) and is_frozen_by_fork(state)
        allocate = self._staging.allocator()
        groups, save.groups = save.groups, []
        if save.tables is not None:
            save.tables.open()
        try:
            self._writer.submit(job, groups, fork=fork, allocate=allocate, tables=save.tables)
        except (BrokenPipeError, ConnectionError):
            save.answer = JobResult({}, lost=True)
        except OSError as error:
            save.answer = JobResult({"error": f"no process can be started to write it: {error}"})

    def answer(self) -> JobResult | None:
        """Return the outcome of the last submitted save; None while it is in progress."""
        return self._writer.answer()

    def prepare(self, save: Save) -> None:
        """Allocate memory for another cut like this one, if such a cut is copied."""
        if save.tables is None and self._is_little(save.sizes):
            self._staging.prepare(save.sizes.touched)

    def close(self) -> None:
        """Abort the save in progress."""
        self._writer.close()

    def _is_little(self, sizes: Sizes) -> bool:
        return sizes.touched <= self._options.copied_share * sizes.full
