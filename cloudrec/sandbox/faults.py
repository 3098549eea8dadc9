"""Faults that /_control orders: what goes wrong with which calls, and whose death comes with which call."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("throttle", "error", "5xx", "timeout", "lost", "drop")


@dataclass(kw_only=True)
class Fault:
    """Goes wrong with `times` calls of `service` whose action matches, after `skip` that do not."""

    kind: str
    service: str = ".*"
    action: str = ".*"
    times: int = 1
    skip: int = 0
    code: str = "InternalFailure"
    status: int = HTTPStatus.BAD_REQUEST
    message: str = "ordered by /_control"


class Faults:
    """The faults in force, in their order; a stand-in may know other `kinds` than most do."""

    def __init__(self, kinds: Sequence[str] = KINDS) -> None:
        self._kinds = kinds
        self._faults: list[Fault] = []

    def order(self, wishes: list[dict[str, Any]]) -> None:
        """Put these in the place of all others."""
        names = {entry.name for entry in fields(Fault)}
        for wish in wishes:
            if unknown := sorted(set(wish) - names):
                raise ValueError(f"a fault has no {', '.join(unknown)}; it has: {', '.join(sorted(names))}")
        faults = [Fault(**wish) for wish in wishes]
        for kind in (fault.kind for fault in faults if fault.kind not in self._kinds):
            raise ValueError(f"unknown kind of fault {kind!r}; there are: {', '.join(self._kinds)}")
        self._faults = faults

    def document(self) -> list[dict[str, Any]]:
        """What is left of them."""
        return [asdict(fault) for fault in self._faults]

    def take(self, service: str, action: str) -> Fault | None:
        """The fault that befalls this call; it is used up by one."""
        for fault in self._faults:
            if not (re.fullmatch(fault.service, service) and re.fullmatch(fault.action, action)):
                continue
            if fault.skip > 0:
                fault.skip -= 1
            elif fault.times > 0:
                fault.times -= 1
                return fault
        return None


@dataclass(kw_only=True)
class Kill:
    """A signal for process `pid` at the `call`-th matching call, before or after that has had its effect.

    KILL leaves nobody whom an answer could reach. INT is Ctrl-C: the call is answered as if nothing were.
    """

    pid: int
    call: int = 1
    when: str = "before"
    service: str = ".*"
    action: str = ".*"
    signal: str = "KILL"

    def __post_init__(self) -> None:
        if self.when not in ("before", "after"):
            raise ValueError(f"when is {self.when!r}; it is before or after")
        if self.call < 1:
            raise ValueError(f"call is {self.call}; the first from now is 1")
        if self.signal not in ("KILL", "INT"):
            raise ValueError(f"signal is {self.signal!r}; it is KILL or INT")
        if self.pid <= 1:
            raise ValueError(f"pid is {self.pid}; no process of yours has it")

    def is_due(self, service: str, action: str) -> bool:
        """Whether it comes with this call, which counts if it matches."""
        if not (re.fullmatch(self.service, service) and re.fullmatch(self.action, action)):
            return False
        self.call -= 1
        return self.call == 0

    def strike(self) -> None:
        """Send the signal; a process that has ended already is no news."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.Signals[f"SIG{self.signal}"])
