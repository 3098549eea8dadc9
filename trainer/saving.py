"""What of a run outlives it: the state, how far it was, what it has seen, and whose it is."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.saves import SavingOptions
from trainer.digest import SampleDigest
from trainer.errors import CheckpointError
from trainer.progress import Progress

if TYPE_CHECKING:
    from trainer.checkpoint import Checkpointer
    from trainer.checkpoint.saves import CheckpointReport
    from trainer.config import TrainerConfig
    from trainer.data.source import Source
    from trainer.distributed import World
    from trainer.learner import Learner


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a checkpoint tells of the run before it."""

    progress: Progress
    seen: SampleDigest  # on rank 0 alone: digests are summed over ranks, and one of them carries the past


class Saving:
    """Saves a run and goes on from what was saved; every method is called by all ranks alike."""

    def __init__(
        self,
        *,
        config: TrainerConfig,
        world: World,
        dataset: Source,
        learner: Learner,
        checkpointer: Checkpointer,
    ) -> None:
        self.config = config
        self.world = world
        self.dataset = dataset
        self.learner = learner
        self.checkpointer = checkpointer
        self.step: int | None = None  # of the newest checkpoint that this run saved or went on from
        self.bytes = 0  # of the newest checkpoint that this run saved
        self.begun: int | None = None  # the step of the newest checkpoint that this run began to save

    def save(self, progress: Progress, seen: SampleDigest, *, wait: bool) -> list[CheckpointReport]:
        """Save this step: committed on return with `wait`, else `poll` tells when it is.

        Gives back what was committed since the last call of this or `poll`; the seconds are added to
        `progress` then.
        """
        self.begun = progress.step
        extra = {
            "progress": progress.to_json(),
            "samples": seen.merge(self.world.control).state(),
            "config": self.config.model_dump(mode="json"),  # with "model", what scoring needs
            "model": asdict(self.learner.shape),
        }
        report = self.checkpointer.save(
            progress.step,
            self.learner.state,
            extra,
            self._fingerprint(),
            initial=self.learner.initial,
            wait=wait,
        )
        return self._note(progress, [] if report is None else [report])

    def poll(self, progress: Progress, *, wait: bool = False) -> list[CheckpointReport]:
        """What was committed since the last call; with `wait`, after what is under way has ended."""
        return self._note(progress, [], wait=wait)

    def _note(
        self, progress: Progress, newest: list[CheckpointReport], *, wait: bool = False
    ) -> list[CheckpointReport]:
        reports = self.checkpointer.poll(wait=wait) + newest
        for report in reports:
            self.step, self.bytes = report.step, report.bytes
            progress.checkpoint_s += report.seconds
        return reports

    def resume(self) -> Resumed | None:
        """Load the newest good checkpoint into the learner; None if there is nothing to go on from.

        The learner's tables need not be drawn before: they are where they are not loaded.

        Raises:
            CheckpointError: it cannot be gone on from, or is not to be.
        """
        resumed = self._resume()
        if resumed is None:
            self.learner.initial.make()
        return resumed

    def _resume(self) -> Resumed | None:
        if not self.config.resume:
            self._refuse_to_overwrite()
            return None
        if not self.dataset.resumable:
            self._refuse_to_go_on()
            return None
        loaded = self.checkpointer.load_newest(
            self.learner.state, self._fingerprint(), initial=self.learner.initial
        )
        if loaded is None:
            return None
        self.step, extra = loaded
        seen = SampleDigest.from_state(extra["samples"]) if self.world.is_first else SampleDigest()
        return Resumed(Progress.from_json(extra["progress"], restarts=restarts()), seen)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written; the same on all ranks."""
        return self.checkpointer.is_saving

    def last_good(self) -> str:
        """Words for where to go back to; a save under way is waited for, but not in a world of several."""
        if self.world.size == 1:
            with suppress(CheckpointError):
                for report in self.checkpointer.poll(wait=True):
                    self.step, self.bytes = report.step, report.bytes
        if self.step is None:
            return "no checkpoint was saved before it"
        return f"the last good checkpoint is that of step {self.step} in {self.config.checkpoint_uri}"

    def _refuse_to_overwrite(self) -> None:
        steps = self.checkpointer.steps()
        if steps:
            raise CheckpointError(
                f"{self.config.checkpoint_uri} holds checkpoints up to step {steps[-1]}, and resume is "
                "off; take another checkpoint_dir, or leave resume on to go on from them"
            )

    def _refuse_to_go_on(self) -> None:
        step = self.checkpointer.newest()
        if step is not None:
            raise CheckpointError(
                f"{self.config.checkpoint_uri} holds a checkpoint of step {step}, but the loader "
                f"{self.config.dataset} cannot start where that stopped (resumable is False); take another "
                "checkpoint_dir to start afresh"
            )

    def _fingerprint(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be gone on from."""
        return {
            "dataset": self.dataset.digest,
            "num_embeddings": self.learner.shape.num_embeddings,
            "embedding_dim": self.config.embedding_dim,
            "dense_arch_layer_sizes": list(self.config.dense_arch_layer_sizes),
            "over_arch_layer_sizes": list(self.config.over_arch_layer_sizes),
            "interaction": self.config.interaction,
            "table_optimizer": self.config.table_optimizer,
            "embedding_weight_precision": self.config.embedding_weight_precision,
            "dense_optimizer": self.config.dense_optimizer,
            "seed": self.config.seed,
            "shuffle": self.config.shuffle,
        }


def saving_options(config: TrainerConfig) -> SavingOptions:
    """How checkpoints are written."""
    return SavingOptions(
        mode=config.checkpoint_mode,
        in_background=config.checkpoint_async,
        quantization=config.checkpoint_quantization,
        chain=config.checkpoint_chain,
        keep_every=config.keep_every_steps,
    )


def restarts() -> int:
    """How often the launcher says that it started this again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
