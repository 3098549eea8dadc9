"""A request to stop, noticed at once, agreed on by all ranks, and acted on between two steps."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Protocol

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_LOG = logging.getLogger(__name__)
# SIGTERM: the launcher or the cluster; SIGUSR1: Slurm's warning; SIGINT: Ctrl-C reaches every rank
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class NoticeSource(Protocol):
    """Something besides a signal that announces the end, such as a cloud's metadata service."""

    def noticed(self) -> bool:
        """Whether the end was announced; must return at once."""
        ...


class StopFlag:
    """Set by the first signal; further ones change nothing, so that a checkpoint can be finished."""

    def __init__(self, sources: Sequence[NoticeSource] = ()) -> None:
        self._sources = tuple(sources)
        self._requested = False
        self._previous: dict[signal.Signals, signal._HANDLER] = {}

    def install(self) -> None:
        """Take over the signals; only the main thread can."""
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def request(self) -> None:
        """Ask for a stop at the next step boundary."""
        self._requested = True

    @property
    def requested(self) -> bool:
        """Whether this rank was asked to stop."""
        return self._requested or any(source.noticed() for source in self._sources)

    def agreed(
        self, group: distributed.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> bool:
        """Whether any rank was asked to stop; collective, and the same on all ranks.

        Every rank calls it at the same step boundary, so that all leave after the same step.
        `device` is where the collectives of `group` work.
        """
        if not distributed.is_initialized() or distributed.get_world_size(group) == 1:
            return self.requested
        flag = torch.tensor([int(self.requested)], dtype=torch.int32, device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX, group=group)
        return bool(flag.item())

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # no logging here: a handler may interrupt the logging it would wait for
        del number
        self._requested = True
