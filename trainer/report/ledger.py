"""The ledger of a run's time: OUTPUT_DIR/goodput.jsonl, written by rank 0 of every attempt.

One JSON object per line, each with a single write. A crash may leave a part of a line; readers skip it.
`elapsed` is in seconds since the attempt's process started:

    start    restarted (by the launcher), boot, boot_s (when the process began), time (of day)
    begin    elapsed, step                              the steps after this one begin
    mark     elapsed, step, spent; stall and write of a checkpoint, if one was just saved
    end      elapsed, status, saved                     an orderly end; without it, it was interrupted
"""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

from cloudrec_contract.interval import SaveCosts
from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import PeerError, TrainerError
from trainer.report.clock import SystemClock
from trainer.report.goodput import AttemptRecord, GoodputParts, Mark, Spent, account, uptimes

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from cloudrec_contract.interval import Uptime
    from trainer.report.clock import ProcessClock

_LOG = logging.getLogger(__name__)
FINISHED = "finished"
_MARK_SHARE = 0.01  # of an attempt's time between two marks: a kill loses at most this share of the records
_MARK_SHORTEST_S = 1.0


def read_ledger(path: Path) -> tuple[list[AttemptRecord], SaveCosts]:
    """Return the attempts in a ledger, and the costs of its newest saves; damaged lines are skipped."""
    attempts: list[AttemptRecord] = []
    costs = SaveCosts()
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [], costs
    for line in text.splitlines():
        try:
            values = safe_object(line)
            _take(values, attempts, costs)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            continue
    return attempts, costs


def _take(values: dict[str, Any], attempts: list[AttemptRecord], costs: SaveCosts) -> None:
    """Add one line to the attempts or the costs; raises an exception if the line is not valid."""
    if values["kind"] == "start":
        known = {name: values[name] for name in ("restarted", "boot", "boot_s", "time")}
        attempts.append(AttemptRecord(**known))
        return
    attempt, elapsed = attempts[-1], float(values["elapsed"])
    if values["kind"] == "begin":
        attempt.begun, attempt.first_step = elapsed, int(values["step"])
    elif values["kind"] == "mark":
        attempt.marks.append(Mark(elapsed, int(values["step"]), Spent(**values["spent"])))
        if "stall" in values:
            costs.add(float(values["stall"]), float(values["write"]))
    elif values["kind"] == "end":
        attempt.status, attempt.saved = str(values["status"]), bool(values["saved"])
    attempt.elapsed = max(attempt.elapsed, elapsed)


class GoodputLedger:
    """This attempt's part of the ledger, and the whole run's figures; writes only if `active`.

    An error of the file is a warning, once, and does not end the run. Use it as a context: an error that a
    restart cannot fix is recorded as this attempt's end; the loss of another rank is not.
    """

    def __init__(
        self, path: Path, *, active: bool, restarted: bool = False, clock: ProcessClock | None = None
    ) -> None:
        self._path = path
        self._active = active
        self._clock = clock or SystemClock()
        self.past, self.costs = read_ledger(path) if active else ([], SaveCosts())
        self.spent = Spent()
        self._step = 0
        self._next_mark = 0.0
        self._warned = False
        self._before = GoodputParts()  # up to this attempt's first step
        self._started = self._clock.process_start
        self._here = AttemptRecord(
            restarted=restarted, boot=self._clock.boot_id, boot_s=self._started, time=self._time_of_start()
        )
        # A process that trains twice began before its first attempt ended; that time must not count twice.
        if self.past:
            overlap = self._overlap(self.past[-1])
            self._here.boot_s, self._here.time = self._here.boot_s + overlap, self._here.time + overlap
            self._started += overlap
        here = self._here
        self._append("start", restarted=restarted, boot=here.boot, boot_s=here.boot_s, time=here.time)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TrainerError) and not isinstance(error, PeerError):
            self.end("failed", saved=False)

    @property
    def elapsed(self) -> float:
        """Seconds since this attempt's process started."""
        return max(self._clock.boot() - self._started, 0.0)

    @property
    def uptimes(self) -> list[Uptime]:
        """The up-times of the attempts before this one."""
        return uptimes(self.past)

    def begin(self, step: int) -> None:
        """Record that the steps after `step` begin."""
        if step == 0 and self.past and self.past[-1].status == FINISHED:
            self.past = []  # a new run in the folder of a finished one
        self._here.begun, self._here.first_step, self._step = self.elapsed, step, step
        self._here.elapsed = self._here.begun
        self._before = account([*self.past, self._here])
        self._append("begin", elapsed=self._here.begun, step=step)

    def mark(self, step: int) -> None:
        """Record the progress of the attempt, unless the last record is recent."""
        self._step = step
        if self.elapsed >= self._next_mark:
            self._mark({})

    def cut(self, step: int) -> None:
        """Record the cut of a checkpoint: steps after it are lost if a later attempt resumes from it."""
        self._step = step
        self._mark({})

    def saved(self, step: int, *, stall_s: float, write_s: float) -> None:
        """Record a committed checkpoint and its costs, while the attempt is at this step."""
        self._step = step
        self.spent.checkpoint += stall_s
        self._mark({"stall": stall_s, "write": write_s})

    def end(self, status: str, *, saved: bool) -> None:
        """Record an orderly end; `saved` means that all its steps are in a checkpoint."""
        if self._here.begun is not None:
            self._mark({})
        self._append("end", elapsed=self.elapsed, status=status, saved=saved)

    def totals(self) -> GoodputParts:
        """Return the whole run's figures up to now."""
        here = self._here
        here.elapsed = self.elapsed
        if here.begun is None:
            return account([*self.past, here])
        here.marks = [Mark(here.elapsed, self._step, self.spent)]
        return self._before + replace(here.split(math.inf), restart=0.0)  # `_before` has the restart

    def _mark(self, more: dict[str, float]) -> None:
        elapsed = self.elapsed
        self._next_mark = elapsed + max(_MARK_SHORTEST_S, _MARK_SHARE * elapsed)
        self._append("mark", elapsed=elapsed, step=self._step, spent=asdict(self.spent), **more)

    def _time_of_start(self) -> float:
        return self._clock.wall() - (self._clock.boot() - self._started)

    def _overlap(self, before: AttemptRecord) -> float:
        if before.boot != self._here.boot:
            return 0.0
        return max(before.boot_s + before.elapsed - self._here.boot_s, 0.0)

    def _append(self, kind: str, **values: object) -> None:
        if not self._active:
            return
        line = json.dumps({"kind": kind, **values}, default=float) + "\n"
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, ("\n" * torn + line).encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _LOG.warning("%s cannot be written, so goodput is not kept: %s", self._path, error)
