"""The checkpoints of a run from the loop's view: saved when due, counted and reported once committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec_contract.interval import CheckpointTimer
    from trainer.checkpoint.format.catalogue import Fallback
    from trainer.checkpoint.save.saves import CheckpointReport
    from trainer.loop.saving import Saving
    from trainer.loop.session.course import Course
    from trainer.loop.session.step_log import StepLog
    from trainer.report.ledger import GoodputLedger
    from trainer.report.report import Reporter


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

    def save(self, course: Course, *, wait: bool = True) -> None:
        """Save a checkpoint of this step unless there is one; with `wait`, it is committed on return."""
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
        """Report the saves committed since the last call; with `wait`, first wait for a save in progress."""
        self._note(course, self.saving.poll(course.progress, wait=wait))

    def foresee(self, step: int) -> None:
        """Prepare the next cut once half of the interval has passed."""
        if self.timer.halfway(step, self._ledger.elapsed):
            self.saving.foresee()

    @property
    def is_held_back(self) -> bool:
        """Whether a save that is due by time must wait because the last one is still being written."""
        # A save that is due by steps waits for the last one instead: its step must not depend on speed.
        return self.saving.is_busy and not self.timer.by_steps

    def _note(self, course: Course, reports: list[CheckpointReport]) -> None:
        """Report checkpoints that are committed."""
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
            self._reporter.say(
                f"step {report.step}: {report.kind} checkpoint, {report.bytes / 1e6:.1f} MB written in "
                f"{report.write_s:.2f} s, training stopped for {report.seconds * 1e3:.0f} ms"
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
