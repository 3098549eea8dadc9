"""Azure: Scheduled Events announce an eviction at least 30 s ahead, but only as best effort."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Any

from trainer.preempt.metadata import MetadataError, MetadataService
from trainer.preempt.notice import Notice, plausible_end
from trainer.preempt.watch import Service

_LEAD_S = 30.0
_TIMEOUT_S = 5.0
_FIRST_TIMEOUT_S = 125.0  # the first request of a machine switches the service on
_ENDS = ("Preempt", "Terminate", "Reboot", "Redeploy")  # a Freeze passes
_OK = 200
_HEADERS = {"Metadata": "true"}


class ScheduledEvents:
    """Reads the events of this machine; the service also returns those of other machines in the scale set."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._answered = False
        self._name: str | None = None

    def poll(self) -> Notice | None:
        """Return the current notice, if any; MetadataError if the service gives no valid answer."""
        timeout_s = _TIMEOUT_S if self._answered else _FIRST_TIMEOUT_S
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        answer = self._service.get(path, _HEADERS, timeout_s=timeout_s)
        if answer.status != _OK:
            raise MetadataError(f"scheduledevents answers with status {answer.status}")
        events = answer.json().get("Events")  # boundary: MetadataResponse's
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            raise MetadataError("its answer has no list of Events")
        self._answered = True
        return next(
            (_notice(event) for event in events if event.get("EventType") in _ENDS and self._is_ours(event)),
            None,
        )

    def _is_ours(self, event: dict[str, Any]) -> bool:
        """Whether an event is about this machine; True if unknown, so that no eviction is missed."""
        resources = event.get("Resources")
        if not isinstance(resources, list) or not resources:
            return True
        if self._name is None:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            try:
                answer = self._service.get(path, _HEADERS, timeout_s=_TIMEOUT_S)
            except MetadataError:
                return True
            if answer.status != _OK or not answer.text:
                return True
            self._name = answer.text
        return self._name.lower() in [str(resource).lower() for resource in resources]


def _notice(event: dict[str, Any]) -> Notice:
    moment = event.get("NotBefore")
    started = event.get("EventStatus") == "Started"  # NotBefore is empty then: it happens now
    seconds_left = 0.0 if started else _seconds_until(moment)
    return Notice(
        source="azure",
        reason=f"{event.get('EventType')} of this machine" + (f" at {moment}" if moment else ""),
        ends_at=plausible_end(seconds_left, lead_s=_LEAD_S),
        fixed=True,
    )


def _seconds_until(moment: object) -> float:
    """Return the seconds until a time of day; infinity if it is malformed, since the event counts anyway."""
    try:
        return parsedate_to_datetime(str(moment)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return float("inf")


SERVICE = Service(
    url="http://169.254.169.254",
    lead_s=_LEAD_S,
    pause_s=1.0,  # as Azure advises where an eviction gives 30 s
    hint="Scheduled Events must be reachable from here, and the first answer may take two minutes",
    make_poller=ScheduledEvents,
)
