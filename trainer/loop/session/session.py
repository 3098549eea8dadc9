"""One attempt at a run: its parts, and the actions between two steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.base.errors import DatasetError
from trainer.loop.session.feed import BadBatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.loop.boundary import StepVerdict
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.checkpoints import RunCheckpoints
    from trainer.loop.session.course import Course
    from trainer.loop.session.ending import RunEnd
    from trainer.loop.session.evaluation import Evaluator
    from trainer.loop.session.feed import BatchFeed
    from trainer.loop.session.judging import StepJudge
    from trainer.loop.session.run_parts import RunParts
    from trainer.loop.session.step_log import StepLog
    from trainer.report.profiling import StepProfiler


_LAST_SAVE_S = 600.0  # to write the trained model, if the store fails; meanwhile the machines cost money


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The parts of one attempt; every method is collective.

    Args:
        run: the parts that do not change.
        course: the progress and the steps left.
        end: ends the attempt.
        feed: yields the batches.
        judge: decides after each step, for all ranks.
        checkpoints: saves and reports checkpoints.
        evaluator: scores the test split.
        log: measures the steps.
        profiler: records the trace of some steps.
    """

    run: RunParts
    course: Course
    end: RunEnd
    feed: BatchFeed
    judge: StepJudge
    checkpoints: RunCheckpoints
    evaluator: Evaluator
    log: StepLog
    profiler: StepProfiler

    def steps(self) -> Iterator[TrainStep]:
        """Run the steps that are left; a step's clock starts when the loop requests the step."""
        course, progress = self.course, self.course.progress
        self.log.begin()
        course.clock.begin_steps()
        self.judge.begin(progress.step)
        batches = self.feed.batches(progress, 0 if self.target_reached else course.left)
        self.profiler.before_step(progress.step)
        try:
            for step in self.run.learner.pipeline.steps(batches, course.done):
                yield step
                self.profiler.before_step(progress.step)
                self.log.resume()
        except BadBatchError as error:
            raise self._completed(error) from None
        self.profiler.close()

    def advance(self, step: TrainStep) -> None:
        """Count a completed step."""
        self.course.see(step.batch)
        seconds = self.log.add(step)
        self.judge.watch(step)
        self.course.advance(step.batch, seconds)
        if self.course.is_due(self.run.config.log_interval):
            self.log.report(self.course)

    def agree(self) -> StepVerdict:
        """Return the decision of all ranks after this step.

        Raises:
            NonFiniteLossError: a loss is not finite.
            DatasetError: a batch that was made on a device has bad values.
        """
        try:
            return self.judge.agree(self.course)
        except BadBatchError as error:
            raise self._completed(error) from None

    def _completed(self, error: BadBatchError) -> DatasetError:
        return DatasetError(f"{error}; {self.checkpoints.saving.last_good()})")

    @property
    def target_reached(self) -> bool:
        """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
        return self.evaluator.target_reached(self.course.progress)

    def evaluate(self) -> dict[str, Any]:
        """Return the metrics of the test split after this step, over all ranks."""
        return self.evaluator.evaluate(self.course)

    def save(self) -> None:
        """Begin to save a checkpoint of this step, unless there is one."""
        self.checkpoints.save(self.course)

    def leave(self, verdict: StepVerdict) -> None:
        """Stop after this step, by the ranks' decision."""
        self.end.leave(self.course, verdict)

    def finish(self, metrics: dict[str, Any]) -> None:
        """Save the model after the last step and evaluation, and end the run.

        Raises:
            SaveError: on all ranks: it could not be written.
        """
        patience_s = min(self.run.config.save_failure_seconds, _LAST_SAVE_S)
        self.checkpoints.save_last(self.course, patience_s=patience_s)
        self.end.finish(self.course, "finished", metrics)
