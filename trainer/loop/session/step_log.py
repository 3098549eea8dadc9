"""The measurements of steps: seconds for the ledger, and a line of metrics every log_interval steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_contract.printed import StepLine
from trainer.report.profiling import memory_bytes
from trainer.report.window import Window

if TYPE_CHECKING:
    from trainer.base.distributed import World
    from trainer.loop.learner import Learner
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.course import Course
    from trainer.report.late import LateCopy
    from trainer.report.ledger import GoodputLedger
    from trainer.report.report import Reporter


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of metrics whose loss is on its way from the device."""

    step: int
    samples: int  # of the steps that it is about
    loss: LateCopy
    values: dict[str, Any]


class StepLog:
    """The figures of the steps since the last line; `report` and `flush` are collective.

    On a GPU a line is written after the steps that were queued behind its own, so that it waits for nothing.
    """

    def __init__(self, world: World, learner: Learner, reporter: Reporter, ledger: GoodputLedger) -> None:
        self._world = world
        self._learner = learner
        self._reporter = reporter
        self._ledger = ledger
        self._line: _Line | None = None
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
        """Make a line of metrics for the steps since the last one, and write it on a CPU."""
        self.flush(course, all_lines=True)
        window, progress = self._window, course.progress
        pipeline = self._learner.pipeline
        goodput = self._ledger.totals()
        values = {
            "attempt": progress.attempt,
            "epoch": progress.epoch,
            "samples": progress.samples,
            "lr": self._learner.optimizers.learning_rate,
            "samples_per_s": window.samples / max(window.seconds, 1e-9),
            # Means over the steps since the last line: a step's time holds its wait for data, not the stall.
            "step_s": window.seconds / max(window.steps, 1),
            "data_wait_s": (pipeline.data_wait_s - window.data_wait_start_s) / max(window.steps, 1),
            "ckpt_stall_s": window.checkpoint_s / max(window.steps, 1),
            **{f"{phase}_s": seconds for phase, seconds in pipeline.phases.take().items()},
            "memory_bytes": memory_bytes(self._world.device),
            "goodput": goodput.fraction,
            "goodput_parts": goodput.to_json(),
        }
        self._line = _Line(progress.step, window.samples, window.loss(), values)
        self.begin()
        self.flush(course, all_lines=self._world.device.type == "cpu")

    def flush(self, course: Course, *, all_lines: bool) -> None:
        """Write the line that waits, if there is one; without `all_lines`, not if it is of this step."""
        line = self._line
        if line is None or (line.step == course.progress.step and not all_lines):
            return
        self._line = None
        loss = self._world.sum([float(line.loss.wait())])[0] / self._world.size / max(line.samples, 1)
        self._reporter.record("train", line.step, loss=loss, **line.values)
        text = f"loss {loss:.4f}  {line.values['samples_per_s']:,.0f} samples/s"
        self._reporter.advance(StepLine(step=line.step, steps=course.total_steps, values=text))
