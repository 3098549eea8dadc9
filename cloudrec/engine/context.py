"""The engine's context (journal, drivers, clock), its retried driver calls and its waits for a condition."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import stamina

from cloudrec.engine.clock import Clock, InterruptedWait
from cloudrec.engine.graph import Condition, ErrorVerdict, Resumable
from cloudrec.errors import CloudrecError, MisreadAnswerError, NoCapacityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.engine.graph import Driver
    from cloudrec.engine.journal import Journal

T = TypeVar("T")
AGAIN = frozenset({ErrorVerdict.RETRY, ErrorVerdict.LOST})

# The pause between polls is this share of the time already waited. A long creation is then polled rarely,
# and its end is noticed late by this share of its duration at most.
_LATENESS = 0.003
_JITTER = 0.1  # share of a pause, so that many threads do not poll at the same moment
# The shortest period of retries in real seconds: a driver's deadline is divided by the clock's speed, and
# the network does not get faster with a simulated cloud.
_LEAST_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # between attempts at one call

_MISREAD_TIMES = 5  # so often, an answer of a call that cannot be read is asked for again

# Users need not see retried calls. Without a handler, logging writes stamina's records to stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


class UnavailableError(NoCapacityError):
    """The cloud has no capacity for one candidate; the engine tries the next one."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What one command of the engine works with.

    Attributes:
        journal: records intents, identities and events.
        drivers: kind -> driver.
        report: called with a resource's key and an event's text.
        clock: for every wait.
    """

    journal: Journal
    drivers: Mapping[str, Driver]
    report: Callable[[str, str], None] = field(default=lambda _key, _event: None)
    clock: Clock = field(default_factory=Clock)

    def note(self, cluster: str, key: str, event: str, detail: str = "") -> None:
        """Record an event and report it."""
        self.journal.note(cluster, key, event, detail)
        self.report(key, f"{event}: {detail}" if detail else event)

    def resume(self, cluster: str) -> None:
        """Give the drivers the operations that were in progress when the last command ended."""
        for begun in self.journal.operations(cluster):
            driver = self.drivers.get(begun.kind)
            if isinstance(driver, Resumable):
                driver.resume(begun.identity, begun.operation)

    def call(self, driver: Driver, work: Callable[[], T]) -> T:
        """Call a driver and return its result; retry with back-off and jitter if its verdict allows it.

        Raises:
            UnavailableError: the cloud has no capacity for the resource.
            CloudrecError: the error cannot be retried, or the driver's deadline has passed; the message is
                the driver's explanation.
        """
        speed = self.clock.speed
        patience_s = max(driver.deadline_s / speed, _LEAST_S)

        misread = 0

        def may_be_made_again(error: Exception) -> bool:
            nonlocal misread
            misread += _is_misread(error)
            if misread > _MISREAD_TIMES:  # not the answer, but what reads it
                return False
            return not isinstance(error, InterruptedWait) and driver.verdict(error) in AGAIN

        try:
            for attempt in stamina.retry_context(
                on=may_be_made_again,
                attempts=None,
                timeout=patience_s,
                wait_initial=_FIRST_PAUSE_S / speed,
                wait_max=_LONGEST_PAUSE_S / speed,
                wait_jitter=_FIRST_PAUSE_S / speed,
            ):
                with attempt:
                    self.clock.check()
                    return work()
        except (CloudrecError, InterruptedWait):
            raise
        except Exception as error:
            explained = driver.explain(error)
            if driver.verdict(error) is ErrorVerdict.UNAVAILABLE:
                raise UnavailableError(explained.message, remedy=explained.remedy) from error
            raise explained from error
        raise AssertionError("stamina ends its loop by returning or raising")

    def await_condition(self, driver: Driver, kind: str, identity: str, wanted: Condition) -> None:
        """Poll a resource until it has the wanted condition.

        Raises:
            UnavailableError: the resource failed because the cloud has no capacity.
            CloudrecError: the resource failed, or did not have the condition at the driver's deadline.
        """
        began, limit_s = self.clock.now(), self.clock.limit(driver.deadline_s)
        while True:
            # Read before the poll, so that the last poll begins after the deadline. A laptop that slept
            # through the wait then still sees that the resource became ready meanwhile.
            waited = self.clock.now() - began
            condition, reason = self.call(driver, partial(driver.condition, kind, identity))
            if condition is wanted:
                return
            if wanted is Condition.READY and condition is Condition.UNAVAILABLE:
                raise UnavailableError(reason)
            if wanted is Condition.READY and condition in {Condition.FAILED, Condition.GONE}:
                raise CloudrecError(f"{kind} {identity} {condition.value}: {reason}")
            if waited >= limit_s:
                late = f"is {condition.value}, not {wanted.value}, after {limit_s:.0f} s"
                raise CloudrecError(
                    f"{kind} {identity} {late}" + (f": {reason}" if reason else ""),
                    remedy="run the command again: it continues from here",
                )
            pause = max(driver.poll_s, _LATENESS * waited)
            self.clock.sleep(pause * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 - no secret


def _is_misread(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, MisreadAnswerError):
        error = error.__cause__
    return error is not None
