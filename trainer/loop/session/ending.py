"""The end of an attempt, finished or stopped by a signal or a notice: last checkpoint, summary and ledger."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer.base.errors import SaveError
from trainer.loop.session.summary import make_summary
from trainer.sharding.digest import model_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainer.loop.boundary import StepVerdict
    from trainer.loop.session.checkpoints import RunCheckpoints
    from trainer.loop.session.course import Course
    from trainer.loop.session.run_parts import RunParts
    from trainer.preempt import StopFlag
    from trainer.report.ledger import GoodputLedger
    from trainer.report.profiling import StepProfiler
    from trainer.report.report import Reporter

STOPPED = "stopped"
_STOP_S = 60.0  # to write the last checkpoint, if the store fails and no notice limits the time


class RunEnd:
    """Ends an attempt in an orderly way; every method is collective."""

    def __init__(
        self,
        run: RunParts,
        *,
        stop: StopFlag,
        checkpoints: RunCheckpoints,
        reporter: Reporter,
        ledger: GoodputLedger,
        profiler: StepProfiler,
    ) -> None:
        self.stop = stop
        self._run = run
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._ledger = ledger
        self._profiler = profiler

    def leave(self, course: Course, verdict: StepVerdict) -> None:
        """Stop after this step, with a checkpoint if there is time for one."""
        notice = self.stop.notice
        if notice is not None:
            self._reporter.say(f"stopping: {notice.source}: {notice.reason}", everywhere=True)
        if verdict.save:
            self._save(course, verdict.seconds_left)
        else:
            self._reporter.say(
                f"{verdict.seconds_left:.0f} s left are too few for a checkpoint, which takes "
                f"{self._checkpoints.timer.costs.write_s:.0f} s; {self._checkpoints.saving.last_good()}"
            )
        self.finish(course, STOPPED, None, in_haste=verdict.seconds_left < math.inf)

    def _save(self, course: Course, seconds_left: float) -> None:
        """Save, or stop with an earlier checkpoint if that fails; SaveError if there is none."""
        limit_s = self._run.config.save_failure_seconds
        try:
            self._checkpoints.save_last(course, patience_s=min(limit_s, seconds_left, _STOP_S))
        except SaveError as error:
            if self._checkpoints.saving.step is None:
                raise
            last_good = self._checkpoints.saving.last_good()
            self._reporter.say(f"the last checkpoint could not be written: {error}; {last_good}")

    def finish(
        self, course: Course, status: str, metrics: Mapping[str, Any] | None, *, in_haste: bool = False
    ) -> None:
        """Write the summary, the ledger's end, and a trace that is still being recorded.

        With `in_haste`, the model's digest is left out: reading all tables may take more time than is left.
        """
        self._profiler.close()
        progress, saving = course.progress, self._checkpoints.saving
        digests = {
            "samples_digest": course.seen.merge(self._run.world.control).hex(),
            "model_digest": self._model_digest(in_haste=in_haste),
        }
        self._ledger.end(status, saved=saving.step == progress.step)
        figures = make_summary(
            self._run.config,
            progress,
            course.clock,
            saving,
            goodput=self._ledger.totals(),
            metrics=metrics,
            paths=self._run.learner.paths,
        )
        self._reporter.summarise({"status": status, **figures, **digests})
        self._reporter.say(
            f"{status} at step {progress.step} of {course.total_steps}, {progress.samples} samples"
        )

    def _model_digest(self, *, in_haste: bool) -> str | None:
        if in_haste or not self._run.config.model_digest:
            return None
        return model_digest(self._run.learner.state, self._run.world.control)
