"""The measurements of steps: seconds for the ledger, and a line of metrics every log_interval steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.report.profiling import memory_bytes
from trainer.report.window import Window

if TYPE_CHECKING:
    from trainer.base.distributed import World
    from trainer.loop.learner import Learner
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.course import Course
    from trainer.report.ledger import GoodputLedger
    from trainer.report.report import Reporter


class StepLog:
    """The figures of the steps since the last line; `report` is collective."""

    def __init__(self, world: World, learner: Learner, reporter: Reporter, ledger: GoodputLedger) -> None:
        self._world = world
        self._learner = learner
        self._reporter = reporter
        self._ledger = ledger
        self.begin()

    def begin(self) -> None:
        """Start a new line, and the clock of its first step."""
        self._window = Window(self._learner.pipeline.data_wait_s)

    def resume(self) -> None:
        """Start the clock of the next step."""
        self._window.resume()

    def add(self, step: TrainStep) -> float:
        """Count a completed step; return its seconds."""
        seconds = self._window.add(step.loss, step.batch.global_size)
        self._ledger.spent.steps += seconds
        self._ledger.spent.data_wait = self._learner.pipeline.data_wait_s
        return seconds

    def add_stall(self, seconds: float) -> None:
        """Count the seconds for which a checkpoint paused the steps."""
        self._window.checkpoint_s += seconds

    def report(self, course: Course) -> None:
        """Write a line of metrics for the steps since the last one."""
        window, progress = self._window, course.progress
        pipeline = self._learner.pipeline
        loss = self._world.sum([window.loss])[0] / self._world.size / max(window.samples, 1)
        speed = window.samples / max(window.seconds, 1e-9)
        goodput = self._ledger.totals()
        self._reporter.record(
            "train",
            progress.step,
            attempt=progress.attempt,
            epoch=progress.epoch,
            samples=progress.samples,
            loss=loss,
            lr=self._learner.optimizers.learning_rate,
            samples_per_s=speed,
            # Means over the steps since the last line: a step's time holds its wait for data, not the stall.
            step_s=window.seconds / max(window.steps, 1),
            data_wait_s=(pipeline.data_wait_s - window.data_wait_start_s) / max(window.steps, 1),
            ckpt_stall_s=window.checkpoint_s / max(window.steps, 1),
            **{f"{phase}_s": seconds for phase, seconds in pipeline.phases.take().items()},
            memory_bytes=memory_bytes(self._world.device),
            goodput=goodput.fraction,
            goodput_parts=goodput.to_json(),
        )
        text = f"loss {loss:.4f}  {speed:,.0f} samples/s"
        self._reporter.advance(progress.step, course.total_steps, text)
        self.begin()
