"""A thread that polls one metadata service; no failure of the service affects the training."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trainer.preempt.metadata import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.preempt.metadata import MetadataService
    from trainer.preempt.notice import Notice

_LOG = logging.getLogger(__name__)
_PAUSES_PER_LEAD = 8  # polls of a failing service within the time that a notice gives
_LEAVE_S = 1.0  # for which the end of a run waits for the thread, which is a daemon


class Poller(Protocol):
    """Polls one service."""

    def poll(self) -> Notice | None:
        """Return the current notice, if any; may block. MetadataError if the answer is not valid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The constants of a cloud's metadata service.

    Args:
        url: its URL from a machine of that cloud.
        variable: the environment variable of the cloud's SDK for another URL or host; empty if there is none.
        lead_s: the seconds before the end at which it promises a notice.
        pause_s: the seconds between two requests.
        hint: a likely cause if it does not answer, for messages.
        make_poller: makes its poller.
    """

    url: str
    lead_s: float
    pause_s: float
    hint: str
    make_poller: Callable[[MetadataService], Poller]
    variable: str = ""


class NoticeWatch:
    """Keeps the newest notice of one service; a NoticeSource.

    A final notice stays even if the service withdraws it, because the run is ending by then. If the service
    fails, the watch warns once and polls less often, but often enough for the service's lead time.

    Args:
        name: the service's name.
        service: its constants.
        connection: a client for its URL.
        lead_s: the seconds that a notice leaves this process; None for the service's.
    """

    def __init__(
        self, name: str, service: Service, connection: MetadataService, *, lead_s: float | None = None
    ) -> None:
        self.name = name
        self._service = service
        self._lead_s = lead_s
        self._connection = connection
        self._poller = service.make_poller(connection)
        self._notice: Notice | None = None
        self._warned = False
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notices-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and abort its request if there is one."""
        self._leaving.set()
        self._connection.close()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def notice(self) -> Notice | None:
        """See NoticeSource."""
        return self._notice

    def _run(self) -> None:
        usual_s = pause_s = self._service.pause_s
        longest_s = max(usual_s, (self._lead_s or self._service.lead_s) / _PAUSES_PER_LEAD)
        while not self._leaving.is_set():
            try:
                self._notice = self._received(self._poller.poll()) or self._notice
                pause_s = usual_s
            except MetadataError as error:
                self._warn(error)
                pause_s = min(2 * pause_s, longest_s)
            if self._notice is not None and self._notice.final:
                return
            self._leaving.wait(pause_s)

    def _received(self, notice: Notice | None) -> Notice | None:
        if notice is None or not notice.final or self._lead_s is None:
            return notice
        return notice.within(self._lead_s)

    def _warn(self, error: MetadataError) -> None:
        if not self._warned and not self._leaving.is_set():
            self._warned = True
            _LOG.warning(
                "no preemption notices from %s at %s for now: %s; the run continues and asks again (%s)",
                self.name,
                self._connection.url,
                error,
                self._service.hint,
            )
