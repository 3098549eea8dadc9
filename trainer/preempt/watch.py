"""A thread that asks one service again and again, and can do no harm whatever the service does."""

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
_PAUSES_PER_LEAD = 8  # even a service that failed is asked this often within the time that a notice gives
_LEAVE_S = 1.0  # that the end of a run waits for a thread; it is a daemon


class Poller(Protocol):
    """One service's way to be asked."""

    def poll(self) -> Notice | None:
        """What is announced now; may take a while; MetadataError when the service does not say."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is known about a cloud's service.

    Args:
        url: where it is reached from a machine of that cloud.
        lead_s: how long before the end it promises to tell.
        pause_s: between two requests.
        hint: what may be wrong when it does not answer.
        make_poller: makes what asks it.
    """

    url: str
    lead_s: float
    pause_s: float
    hint: str
    make_poller: Callable[[MetadataService], Poller]


class Watch:
    """Keeps the newest notice of one service; a NoticeSource.

    A final notice stays, even if the service takes it back: the run is ending by then. A service that is
    silent, slow or talks nonsense is warned of once and asked less often, but often enough for its lead.
    """

    def __init__(self, name: str, service: Service, connection: MetadataService) -> None:
        self.name = name
        self._service = service
        self._connection = connection
        self._poller = service.make_poller(connection)
        self._notice: Notice | None = None
        self._warned = False
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notices-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, in the middle of a request if need be."""
        self._leaving.set()
        self._connection.close()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def notice(self) -> Notice | None:
        """See NoticeSource."""
        return self._notice

    def _run(self) -> None:
        usual_s = pause_s = self._service.pause_s
        longest_s = max(usual_s, self._service.lead_s / _PAUSES_PER_LEAD)
        while not self._leaving.is_set():
            try:
                self._notice = self._poller.poll() or self._notice
                pause_s = usual_s
            except MetadataError as error:
                self._warn(error)
                pause_s = min(2 * pause_s, longest_s)
            if self._notice is not None and self._notice.final:
                return
            self._leaving.wait(pause_s)

    def _warn(self, error: MetadataError) -> None:
        if not self._warned and not self._leaving.is_set():
            self._warned = True
            _LOG.warning(
                "no preemption notices from %s at %s for now: %s; the run goes on and asks again (%s)",
                self.name,
                self._connection.url,
                error,
                self._service.hint,
            )
