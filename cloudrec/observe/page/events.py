"""What happened to a run, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.observe.page.human import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent

_SHOWN = 200
_TONES = {
    "succeeded": "good",
    "failed": "bad",
    "rank_ended": "warn",
    "restarting": "warn",
    "interrupted": "warn",
    "stop_requested": "warn",
}
_WORDS = {"pid": "process", "grace_s": "grace in seconds", "attempt": "attempt", "launcher": "launcher"}


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One event on the page's time line.

    Attributes:
        time: seconds since the epoch.
        after: how long after the first event.
        event: what happened.
        tone: good, bad, warn or plain.
        text: more about it.
    """

    time: float
    after: str
    event: str
    tone: str
    text: str


def moments(events: Sequence[LedgerEvent], kept: Sequence[tuple[float, str]] = ()) -> list[Moment]:
    """Return the newest events of a run, newest first, without routine ones.

    Args:
        events: the run's ledger.
        kept: time and text of what the keeper of its cluster did with it.
    """
    first = events[0].time if events else min((time for time, _ in kept), default=0.0)
    own = [
        Moment(
            time=event.time,
            after=f"+{duration(max(event.time - first, 0.0))}",
            event=event.event.replace("_", " "),
            tone=_TONES.get(event.event, "plain"),
            text=_text(event),
        )
        for event in events
        if not _is_routine(event)
    ]
    others = [
        Moment(
            time=time, after=f"+{duration(max(time - first, 0.0))}", event="keeper", tone="plain", text=text
        )
        for time, text in kept
    ]
    return sorted([*own, *others], key=lambda moment: moment.time)[::-1][:_SHOWN]


def _is_routine(event: LedgerEvent) -> bool:
    return event.event == "rank_started" or (
        event.event == "rank_ended" and event.details.get("exit_code") == 0
    )


def _text(event: LedgerEvent) -> str:
    details = event.details
    if event.event == "rank_ended":
        attempt = f"rank {details.get('rank')}, attempt {details.get('attempt')}"
        return f"{attempt}: exit code {details.get('exit_code')}"
    if cause := details.get("cause"):
        return str(cause)
    facts = [f"{words} {details[key]}" for key, words in _WORDS.items() if details.get(key) is not None]
    return ", ".join([f"launch {event.launch}", *facts])
