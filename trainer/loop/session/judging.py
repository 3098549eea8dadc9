"""The decision after a step: all ranks agree whether to save or stop, and a non-finite loss ends the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.base.errors import NonFiniteLossError
from trainer.data.checks import spell_ids
from trainer.loop.boundary import StepVerdict
from trainer.report.window import LossWatch, WatchedStep

if TYPE_CHECKING:
    from trainer.base.distributed import World
    from trainer.loop.boundary import Boundary
    from trainer.loop.learner import Learner
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.checkpoints import RunCheckpoints
    from trainer.loop.session.course import Course
    from trainer.loop.session.feed import BatchFeed
    from trainer.loop.session.step_log import StepLog
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
        log: StepLog,
    ) -> None:
        self._world = world
        self._feed = feed
        self._learner = learner
        self._boundary = boundary
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._log = log
        self._losses = LossWatch(late=world.device.type != "cpu")

    def begin(self, step: int) -> None:
        """Start the ledger and the boundary at the steps after `step`."""
        self._ledger.begin(step)
        self._boundary.begin(step)

    def watch(self, step: TrainStep) -> None:
        """Keep the loss of a step until an agreement: reading it now would wait for the GPU."""
        rate = self._learner.optimizers.learning_rate
        self._losses.add(step.loss, WatchedStep(step.batch.sample_ids, rate))

    def agree(self, course: Course) -> StepVerdict:
        """Return the decision of all ranks after this step.

        A loss, and whether a batch is bad, is read by the next agreement on a GPU, and by this one before
        anything is made from the model: a checkpoint, metrics, the end of the run.

        Raises:
            NonFiniteLossError: on all ranks: a loss was NaN or infinite on one of them.
            BadBatchError: a batch of this rank that was made on a device has bad values.
        """
        step = course.progress.step
        uses_model = course.is_over or course.is_due(self._learner.config.eval_interval)
        if not self._boundary.is_due(step, last=uses_model):
            return StepVerdict()
        self._ledger.mark(step)
        self._checkpoints.poll(course)
        self._checkpoints.foresee(step)
        self._log.flush(course, all_lines=uses_model)
        now = uses_model or self._boundary.saves(step)
        self._feed.confirm(step, now=now)
        bad_step = self._losses.first_bad_step(step, now=now)
        committed = self._checkpoints.saving.step is not None
        verdict = self._boundary.ask(step, last=course.is_over, committed=committed, bad_step=bad_step)
        bad_step = verdict.bad_step
        if self._losses.late and not now and not bad_step and (verdict.save or verdict.stop):
            self._feed.confirm(step, now=True)
            bad_step = self._boundary.first_of(self._losses.first_bad_step(step, now=True))
        if bad_step:
            # A save in progress may become the checkpoint that the message names to resume from.
            self._checkpoints.poll(course, wait=True)
            raise NonFiniteLossError(self._explain(bad_step))
        if verdict.save and not verdict.stop and self._checkpoints.is_held_back:
            return replace(verdict, save=False)
        return verdict

    def _explain(self, bad_step: int) -> str:
        watched, is_bad_here = self._losses.what_was(bad_step)
        ids = self._world.gather_lists(watched.sample_ids.tolist() if is_bad_here else [])
        saved = self._checkpoints.saving.last_good()
        return (
            f"the loss became NaN or infinite at step {bad_step} (learning_rate {watched.learning_rate:g}) "
            f"in the batch of {spell_ids(ids)}; {saved}; "
            "lower learning_rate or dense_learning_rate, or raise lr_warmup_steps"
        )
