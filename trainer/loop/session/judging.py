"""The decision after a step: all ranks agree whether to save or stop, and a non-finite loss ends the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.base.errors import NonFiniteLossError
from trainer.data.checks import spell_ids
from trainer.loop.boundary import StepVerdict
from trainer.report.window import LossWatch

if TYPE_CHECKING:
    from trainer.base.distributed import World
    from trainer.loop.boundary import Boundary
    from trainer.loop.learner import Learner
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.checkpoints import RunCheckpoints
    from trainer.loop.session.course import Course
    from trainer.loop.session.feed import BatchFeed
    from trainer.report.ledger import GoodputLedger


class StepJudge:
    """Watches the losses and agrees with the other ranks; every method is collective."""

    def __init__(
        self,
        world: World,
        learner: Learner,
        *,
        boundary: Boundary,
        checkpoints: RunCheckpoints,
        ledger: GoodputLedger,
        feed: BatchFeed,
    ) -> None:
        self._world = world
        self._feed = feed
        self._learner = learner
        self._boundary = boundary
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._losses = LossWatch()

    def begin(self, step: int) -> None:
        """Start the ledger and the boundary at the steps after `step`."""
        self._ledger.begin(step)
        self._boundary.begin(step)

    def watch(self, step: TrainStep) -> None:
        """Keep the loss of a step until the next agreement: reading it now would wait for the GPU."""
        self._losses.add(step.loss, step.batch.sample_ids)

    def agree(self, course: Course) -> StepVerdict:
        """Return the decision of all ranks after this step.

        Raises:
            NonFiniteLossError: on all ranks: a loss was NaN or infinite on one of them.
            BadBatchError: a batch of this rank that was made on a device has bad values.
        """
        step = course.progress.step
        if not self._boundary.is_due(step, last=course.is_over):
            return StepVerdict()
        self._feed.confirm(step)
        self._ledger.mark(step)
        self._checkpoints.poll(course)
        self._checkpoints.foresee(step)
        bad_step = self._losses.first_bad_step(step)
        committed = self._checkpoints.saving.step is not None
        verdict = self._boundary.ask(step, last=course.is_over, committed=committed, bad_step=bad_step)
        if verdict.bad_step:
            # A save in progress may become the checkpoint that the message names to resume from.
            self._checkpoints.poll(course, wait=True)
            raise NonFiniteLossError(self._explain(verdict.bad_step, step))
        if verdict.save and not verdict.stop and self._checkpoints.is_held_back:
            return replace(verdict, save=False)
        return verdict

    def _explain(self, bad_step: int, step: int) -> str:
        ids = self._world.gather_lists(self._losses.samples_of(bad_step, step))
        rate = self._learner.optimizers.learning_rate
        saved = self._checkpoints.saving.last_good()
        return (
            f"the loss became NaN or infinite at step {bad_step} (learning_rate {rate:g}) in the batch of "
            f"{spell_ids(ids)}; {saved}; "
            "lower learning_rate or dense_learning_rate, or raise lr_warmup_steps"
        )
