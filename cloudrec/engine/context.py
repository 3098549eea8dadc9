"""What the engine works with, and how it calls a driver and waits for a cloud."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import stamina

from cloudrec.engine.clock import Clock, InterruptedWait
from cloudrec.engine.graph import Condition, Resumable, Verdict
from cloudrec.errors import CloudrecError, NoCapacityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.engine.graph import Driver
    from cloudrec.engine.journal import Journal

T = TypeVar("T")
AGAIN = frozenset({Verdict.RETRY, Verdict.LOST})

# A look at what takes long is due after this share of the time waited already, so that what is ready is
# seen at most so much too late, whatever it is.
_LATENESS = 0.003
_JITTER = 0.1  # of a pause, so that many who wait do not ask at once
_LEAST_S = 20.0  # of ours, in which one call is made again, whatever its driver's deadline
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # between attempts at one call

# A call that is made again is no news to a person; without a handler, logging writes it to stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


class UnavailableError(NoCapacityError):
    """The cloud has none of one candidate: the next may do."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The journal, the drivers by kind, the clock, and who is told."""

    journal: Journal
    drivers: Mapping[str, Driver]
    report: Callable[[str, str], None] = field(default=lambda _key, _event: None)
    clock: Clock = field(default_factory=Clock)

    def note(self, cluster: str, key: str, event: str, detail: str = "") -> None:
        """Write an event down and tell whoever watches."""
        self.journal.note(cluster, key, event, detail)
        self.report(key, f"{event}: {detail}" if detail else event)

    def resume(self, cluster: str) -> None:
        """Give the drivers the operations that were under way when the last command ended."""
        for begun in self.journal.operations(cluster):
            driver = self.drivers.get(begun.kind)
            if isinstance(driver, Resumable):
                driver.resume(begun.identity, begun.operation)

    def call(self, driver: Driver, work: Callable[[], T]) -> T:
        """Make a call of a driver, again with back-off and jitter while the driver says that it may be.

        Raises:
            UnavailableError: the cloud has none of what was asked for.
            CloudrecError: in a person's words, once it may not be made again or the deadline has passed.
        """
        speed = self.clock.speed
        patience_s = max(driver.deadline_s / speed, _LEAST_S)

        def may_be_made_again(error: Exception) -> bool:
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
            if driver.verdict(error) is Verdict.UNAVAILABLE:
                raise UnavailableError(explained.message, remedy=explained.remedy) from error
            raise explained from error
        raise AssertionError("stamina ends its loop by returning or raising")

    def await_condition(self, driver: Driver, kind: str, identity: str, wanted: Condition) -> None:
        """Look until the resource is as wanted.

        The last look begins after the deadline: a machine that slept, or stood still, is no late cloud.

        Raises:
            UnavailableError: it failed since the cloud has none.
            CloudrecError: it failed, or was not there at its deadline.
        """
        began, limit_s = self.clock.now(), self.clock.limit(driver.deadline_s)
        while True:
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
                    remedy="run the command again: it goes on from here",
                )
            pause = max(driver.poll_s, _LATENESS * waited)
            self.clock.sleep(pause * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 - no secret
