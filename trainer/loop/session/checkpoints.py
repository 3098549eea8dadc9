"""The checkpoints of a run from the loop's view: saved when due, counted and reported once committed.

A save that fails does not end a run that has an earlier checkpoint: training continues, and saves are tried
again, until `save_failure_seconds` have passed without one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cloudrec_contract.printed import SavedLine
from trainer.base.errors import SaveError

if TYPE_CHECKING:
    from cloudrec_contract.interval import CheckpointTimer
    from trainer.checkpoint.format.catalogue import Fallback
    from trainer.checkpoint.save.saves import CheckpointReport
    from trainer.loop.saving import Saving
    from trainer.loop.session.course import Course
    from trainer.loop.session.step_log import StepLog
    from trainer.report.ledger import GoodputLedger
    from trainer.report.report import Reporter

_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0  # between a failed save and the next try; it doubles each time


class RunCheckpoints:
    """Saves by `saving`, and reports costs to the timer, ledger and reporter; every method is collective."""

    def __init__(
        self,
        saving: Saving,
        *,
        timer: CheckpointTimer,
        ledger: GoodputLedger,
        reporter: Reporter,
        log: StepLog,
    ) -> None:
        self.saving = saving
        self.timer = timer
        self._ledger = ledger
        self._reporter = reporter
        self._log = log
        self._failures = 0  # in a row; the same on all ranks
        self._failing_since = 0.0

    def save(self, course: Course) -> None:
        """Begin to save a checkpoint of this step unless there is one; `poll` reports it once committed.

        Raises:
            SaveError: on all ranks, if saves fail for too long, or the run has no checkpoint to fall back on.
        """
        try:
            self._save(course, wait=False)
        except SaveError as error:
            self._go_on(course, error)

    def save_last(self, course: Course, *, patience_s: float) -> None:
        """Save a checkpoint of this step unless there is one; it is committed on return.

        Args:
            course: the run's.
            patience_s: to try again if it fails.

        Raises:
            SaveError: on all ranks: it could not be written in this time.
        """
        started = self._ledger.elapsed
        while True:
            try:
                self._save(course, wait=True)
            except SaveError as error:
                self._count_failure(course)
                wait_s = self._wait_s
                if self._slowest(self._ledger.elapsed - started) + wait_s > patience_s:
                    raise
                self._report_failure(course, error, f"it is tried again in {wait_s:.0f} s")
                time.sleep(wait_s)
            else:
                return

    def _save(self, course: Course, *, wait: bool) -> None:
        progress = course.progress
        if self.saving.step == progress.step:
            return
        if self.saving.begun != progress.step:
            progress.checkpoint_count += 1
        progress.training_s = course.clock.training_s
        self._ledger.cut(progress.step)
        self.timer.cut(self._ledger.elapsed)
        self._note(course, self.saving.save(progress, course.seen, wait=wait))

    def poll(self, course: Course, *, wait: bool = False) -> None:
        """Report the saves committed since the last call; with `wait`, first wait for a save in progress.

        Raises:
            SaveError: see `save`.
        """
        self._report_damage(course)
        try:
            self._note(course, self.saving.poll(course.progress, wait=wait))
        except SaveError as error:
            self._go_on(course, error)

    def foresee(self, step: int) -> None:
        """Prepare the next cut once half of the interval has passed."""
        if self.timer.halfway(step, self._ledger.elapsed):
            self.saving.foresee()

    @property
    def is_held_back(self) -> bool:
        """Whether a save that is due by time must wait because the last one is still being written."""
        # A save that is due by steps waits for the last one instead: its step must not depend on speed.
        return self.saving.is_busy and not self.timer.by_steps

    def _go_on(self, course: Course, error: SaveError) -> None:
        """Plan another try, unless the run has to end."""
        self._count_failure(course)
        limit_s = self.saving.config.save_failure_seconds
        failing_s = self._slowest(self._ledger.elapsed - self._failing_since)
        if self.saving.step is None or not limit_s:  # it never worked, so it may never do
            raise error
        if failing_s >= limit_s:
            raise SaveError(
                f"{error}; {self._failures} saves have failed for {failing_s} s (save_failure_seconds is "
                f"{limit_s:g}); {self.saving.last_good()}"
            ) from error
        self.timer.failed(self._ledger.elapsed, self._wait_s)
        self._report_failure(
            course,
            error,
            f"training continues, and the next try follows in about {self._wait_s:.0f} s; the run ends if "
            f"none succeeds within {limit_s - failing_s:.0f} s; {self.saving.last_good()}",
        )

    def _count_failure(self, course: Course) -> None:
        # The save before the failed one may have been committed since the last look.
        self._note(course, self.saving.poll(course.progress))
        if not self._failures:
            self._failing_since = self._ledger.elapsed
        self._failures += 1

    @property
    def _wait_s(self) -> float:
        return min(_FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 20), _LONGEST_WAIT_S)

    def _slowest(self, seconds: float) -> int:
        """Return the largest value of any rank, so that all ranks decide the same."""
        return max(self.saving.world.gather_lists([int(seconds)]))

    def _report_damage(self, course: Course) -> None:
        """Report what was found damaged, after a save that was begun before."""
        step = course.progress.step
        for problem in () if self.saving.is_busy else self.saving.checkpointer.take_damage():
            self._reporter.record("checkpoint_damage", step, problem=problem)
            self._reporter.say(
                f"step {step}: a file of the newest checkpoint is damaged: {problem}; the next checkpoint "
                "begins a new chain"
            )

    def _report_failure(self, course: Course, error: SaveError, outlook: str) -> None:
        step = course.progress.step
        self._reporter.record("save_failure", step, failures=self._failures, problem=str(error))
        self._reporter.say(f"step {step}: a checkpoint could not be written: {error}; {outlook}")

    def _note(self, course: Course, reports: list[CheckpointReport]) -> None:
        """Report checkpoints that are committed."""
        if reports and self._failures:
            self._reporter.say(
                f"step {course.progress.step}: checkpoints are written again, after {self._failures} failures"
            )
            self._failures = 0
        for report in reports:
            self._log.add_stall(report.seconds)
            self._ledger.saved(course.progress.step, stall_s=report.seconds, write_s=report.write_s)
            self.timer.saved(report.seconds, report.write_s)
            self._reporter.record(
                "checkpoint",
                report.step,
                seconds=report.seconds,
                write_s=report.write_s,
                bytes=report.bytes,
                content=report.kind,
                **_fallback_values(report.fallback),
            )
            line = SavedLine(
                step=report.step,
                content=report.kind,
                megabytes=report.bytes / 1e6,
                write_s=report.write_s,
            )
            self._reporter.say(
                f"{line.text()}, training stopped for {report.seconds * 1e3:.0f} ms"
                f"{_spell_lack(report.fallback) if self.saving.config.keep_checkpoints > 1 else ''}"
            )


def _fallback_values(fallback: Fallback | None) -> dict[str, int | None]:
    """Return the fallback's values for metrics.jsonl; all null if it is not known."""
    if fallback is None:
        return {"fallback_step": None, "shared_layers": None, "shared_with": None}
    return {
        "fallback_step": fallback.step,
        "shared_layers": fallback.shared_layers,
        "shared_with": fallback.shared_with,
    }


def _spell_lack(fallback: Fallback | None) -> str:
    """Return a remark on a checkpoint that shares a file with every other; empty if one is independent."""
    if fallback is None or fallback.step is not None:
        return ""
    if fallback.shared_with is None:
        return "; no other checkpoint is kept yet"
    return (
        f"; it shares {fallback.shared_layers} layers with step {fallback.shared_with}, and no kept "
        "checkpoint is independent of them: the next one will be"
    )
