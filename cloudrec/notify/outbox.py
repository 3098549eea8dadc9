"""What has to be sent, and what was: kept as JSON, so that a restart neither loses nor repeats a notice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.notify.notice import Notification, UnusableChannel  # noqa: TC001 - record_of reads the annotations
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.notify.channels import SendFailure

MOST_TRIES = 12
_FIRST_S, _LONGEST_S = 15.0, 1800.0  # until the next attempt; it doubles
_MOST_WAITING = 100  # deliveries; the oldest are given up
_MOST_KNOWN = 500  # keys
_MOST_DONE = 30


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One notice on one way out.

    Attributes:
        notice: the notice.
        channel: the way out.
        tries: the attempts so far.
        due: when it may be tried, in seconds since the epoch.
        why: why the last attempt failed; empty before it.
    """

    notice: Notification
    channel: str
    tries: int = 0
    due: float = 0.0
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class PastDelivery:
    """A delivery that has ended.

    Attributes:
        at: when, in seconds since the epoch.
        key: the key of the notice.
        event: the kind of the notice.
        run: its run; empty for none.
        channel: the way out.
        tries: the attempts.
        why: why it was given up; empty if it was delivered.
    """

    at: float
    key: str
    event: str
    run: str
    channel: str
    tries: int
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Outbox:
    """The notices of one sender.

    Attributes:
        known: the keys of all notices that it has had, the newest last; these are not sent again.
        waiting: what is still to be delivered, the oldest first.
        done: the newest deliveries that have ended, the oldest first.
        problems: ways out that cannot be used.
        facts: what the sender remembers to see changes.
    """

    known: tuple[str, ...] = ()
    waiting: tuple[Delivery, ...] = ()
    done: tuple[PastDelivery, ...] = ()
    problems: tuple[UnusableChannel, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Outbox | None:
        """Return the outbox from its JSON; None if it is absent or damaged."""
        if not text:
            return None
        try:
            found = record_of(cls, safe_object(text))
            for at in (*(each.notice.at for each in found.waiting), *(each.at for each in found.done)):
                datetime.fromtimestamp(at, UTC)
        except (ValueError, OverflowError, OSError):
            return None
        return found

    def to_json(self) -> str:
        """Return the outbox as JSON."""
        waiting = [{**asdict(each), "notice": each.notice.to_record()} for each in self.waiting]
        return json.dumps({**asdict(self), "waiting": waiting})

    def adding(self, notices: Iterable[Notification], channels: Sequence[str]) -> Outbox:
        """Return the outbox with the notices that it has not had before, for each way out."""
        known, waiting = list(self.known), list(self.waiting)
        for notice in notices:
            if notice.key not in known:
                known.append(notice.key)
                waiting += [Delivery(notice=notice, channel=name, due=notice.at) for name in channels]
        return replace(self, known=tuple(known[-_MOST_KNOWN:]), waiting=tuple(waiting[-_MOST_WAITING:]))

    def knowing(self, keys: Iterable[str]) -> Outbox:
        """Return the outbox with keys of events that are not sent: they were there before it."""
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        return replace(self, known=(*self.known, *new)[-_MOST_KNOWN:])

    def forgetting(self, key: str) -> Outbox:
        """Return the outbox without a key, so that the event is sent when it happens again."""
        return replace(self, known=tuple(each for each in self.known if each != key))

    def due(self, now: float) -> list[Delivery]:
        """Return the deliveries that may be tried now, the oldest first."""
        return [each for each in self.waiting if each.due <= now]

    def tried(self, delivery: Delivery, refusal: SendFailure | None, now: float) -> Outbox:
        """Return the outbox after an attempt."""
        tries = delivery.tries + 1
        rest = tuple(each for each in self.waiting if each != delivery)
        if refusal is not None and not refusal.is_final and tries < MOST_TRIES:
            wait = min(_FIRST_S * 2 ** (tries - 1), _LONGEST_S)
            again = replace(delivery, tries=tries, due=now + wait, why=refusal.why)
            return replace(self, waiting=(*rest, again))
        ended = PastDelivery(
            at=now,
            key=delivery.notice.key,
            event=delivery.notice.event,
            run=delivery.notice.run,
            channel=delivery.channel,
            tries=tries,
            why=refusal.why if refusal is not None else "",
        )
        return replace(self, waiting=rest, done=(*self.done, ended)[-_MOST_DONE:])
