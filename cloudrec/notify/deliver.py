"""Attempts deliveries within a bounded time: a server that hangs, or drips, holds nothing up."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cloudrec.notify.channels import TIMEOUT_S, SendFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.notify.channels import Channel
    from cloudrec.notify.outbox import Delivery, Outbox

_GONE = "the way out is no longer in the settings"
_LEAST_S = 0.2


def deliver(outbox: Outbox, channels: Sequence[Channel], *, now: float, within_s: float) -> Outbox:
    """Try what is due, and return the outbox after it.

    The ways out work beside each other, so that one that hangs takes no time of the others. What was not
    reached in time stays as it is; what was begun counts as an attempt.

    Args:
        outbox: what has to be sent.
        channels: the ways out.
        now: the time, in seconds since the epoch.
        within_s: seconds after which this function returns, whatever the servers do.
    """
    by_name = {channel.name: channel for channel in channels}
    lines: dict[str, list[Delivery]] = {}
    for delivery in outbox.due(now):
        if delivery.channel in by_name:
            lines.setdefault(delivery.channel, []).append(delivery)
        else:
            outbox = outbox.tried(delivery, SendFailure(why=_GONE, is_final=True), now)
    deadline = time.monotonic() + within_s
    attempts = [_ChannelAttempts(by_name[name], waiting, deadline) for name, waiting in lines.items()]
    for each in attempts:
        each.start()
    for each in attempts:
        for delivery, refusal in each.results():
            outbox = outbox.tried(delivery, refusal, now)
    return outbox


class _ChannelAttempts(threading.Thread):
    """The deliveries of one way out, one after the other. The thread ends with the process."""

    def __init__(self, channel: Channel, waiting: Sequence[Delivery], deadline: float) -> None:
        super().__init__(name=f"notify-{channel.name}", daemon=True)
        self._channel = channel
        self._waiting = waiting
        self._deadline = deadline
        self._lock = threading.Lock()
        self._begun: Delivery | None = None
        self._results: list[tuple[Delivery, SendFailure | None]] = []
        self._is_read = False

    def run(self) -> None:
        for delivery in self._waiting:
            with self._lock:
                left = self._deadline - time.monotonic()
                if self._is_read or left < _LEAST_S:
                    return
                self._begun = delivery
            try:
                refusal = self._channel.send(delivery.notice, timeout_s=min(left, TIMEOUT_S))
            except Exception as error:  # noqa: BLE001 - no notice may end what sends it
                refusal = SendFailure(why=f"{type(error).__name__}")
            with self._lock:
                self._begun = None
                self._results.append((delivery, refusal))
                if refusal is not None and not refusal.is_final:
                    return  # the next ones would wait for the same server

    def results(self) -> list[tuple[Delivery, SendFailure | None]]:
        """Wait until the deadline at most; return what was tried, and how it ended."""
        self.join(max(self._deadline - time.monotonic(), 0.0))
        with self._lock:
            self._is_read = True
            hanging = [(self._begun, SendFailure(why="it did not answer in time"))] if self._begun else []
            return [*self._results, *hanging]
