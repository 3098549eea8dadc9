"""The flag of a requested stop: set immediately, handled between two steps when all ranks have agreed."""

from __future__ import annotations

import math
import signal
import time
from typing import TYPE_CHECKING

import torch
from torch import distributed

from trainer.preempt.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from trainer.preempt.notice import NoticeSource

_NOTICE_FOLLOWS_S = 6.0  # the longest pause between two polls for notices, and a second
# SIGTERM: the launcher or the cluster; SIGUSR1: Slurm's warning; SIGINT: Ctrl-C reaches every rank
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopFlag:
    """Set by the first signal or notice; further ones change nothing, so that a checkpoint can be finished.

    Args:
        sources: other sources that may announce the end.
        grace_s: seconds between a SIGTERM and the kill; None if it is not known.
    """

    def __init__(self, sources: Sequence[NoticeSource] = (), *, grace_s: float | None = None) -> None:
        self._sources = tuple(sources)
        self._grace_s = math.inf if grace_s is None else grace_s
        self._asked: Notice | None = None
        self._signalled: tuple[int, float] | None = None  # the first signal, and when it came
        self._taken: set[Notice] = set()  # advice that `take_advice` has returned
        self._previous: dict[signal.Signals, signal._HANDLER] = {}

    def install(self) -> None:
        """Install the signal handlers; Python allows this in the main thread only."""
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def request(self) -> None:
        """Request a stop at the next step boundary."""
        self._asked = self._asked or Notice(source="request", reason="asked to stop")

    @property
    def notice(self) -> Notice | None:
        """The notice that leaves the least time; None if this rank need not stop."""
        return min(self._final_notices(), key=lambda notice: notice.ends_at, default=None)

    @property
    def requested(self) -> bool:
        """Whether this rank must stop."""
        return self.notice is not None

    @property
    def patient(self) -> bool:
        """Whether the process may train until the end: every source announced an end at a fixed time."""
        return all(notice.fixed for notice in self._final_notices())

    @property
    def announced(self) -> bool:
        """Whether a source announced that this machine ends at a fixed time, or may do so right now.

        A cluster that drains a machine sends SIGTERM with the cloud's notice, or before the next poll for it.
        """
        if any(notice.fixed for notice in self._final_notices()):
            return True
        number, at = self._signalled or (None, -math.inf)
        return bool(self._sources) and number == signal.SIGTERM and time.monotonic() - at < _NOTICE_FOLLOWS_S

    @property
    def seconds_left(self) -> float:
        """Seconds until this machine ends; infinity if that is not known."""
        notice = self.notice
        return math.inf if notice is None else notice.seconds_left

    def take_advice(self) -> Notice | None:
        """Return advice to save a checkpoint that was not returned before; None if there is none."""
        for source in self._sources:
            notice = source.notice()
            if notice is not None and not notice.final and notice not in self._taken:
                self._taken.add(notice)
                return notice
        return None

    def agreed(
        self, group: distributed.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> bool:
        """Whether any rank must stop; collective, with the same result on all ranks.

        Every rank calls it at the same step boundary, so that all leave after the same step. `device` is the
        device of `group`'s collectives.
        """
        if not distributed.is_initialized() or distributed.get_world_size(group) == 1:
            return self.requested
        flag = torch.tensor([int(self.requested)], dtype=torch.int32, device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX, group=group)
        return bool(flag.item())

    def _final_notices(self) -> list[Notice]:
        notices = [self._asked, self._signal_notice(), *(source.notice() for source in self._sources)]
        return [notice for notice in notices if notice is not None and notice.final]

    def _signal_notice(self) -> Notice | None:
        if self._signalled is None:
            return None
        number, at = self._signalled
        # Only SIGTERM is followed by a kill after the grace period.
        ends_at = at + self._grace_s if number == signal.SIGTERM else math.inf
        return Notice(source=signal.Signals(number).name, reason="the signal asks to stop", ends_at=ends_at)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # No logging here: a signal handler may run in the middle of another log call.
        if self._signalled is None:
            self._signalled = (number, time.monotonic())
