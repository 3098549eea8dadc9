"""Faults that /_control orders: calls that go wrong, and calls at which a client is killed."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("throttle", "error", "5xx", "timeout", "lost", "drop")


@dataclass(kw_only=True)
class Fault:
    """Applies to `times` calls of `service` whose action matches, after the first `skip` of them."""

    kind: str
    service: str = ".*"
    action: str = ".*"
    times: int = 1
    skip: int = 0
    code: str = "InternalFailure"
    status: int = HTTPStatus.BAD_REQUEST
    message: str = "ordered by /_control"


class Faults:
    """The faults in force, in their order; a stand-in may support other `kinds` than KINDS."""

    def __init__(self, kinds: Sequence[str] = KINDS) -> None:
        self._kinds = kinds
        self._faults: list[Fault] = []

    def order(self, wishes: list[dict[str, Any]]) -> None:
        """Replace all faults by these; ValueError for an unknown kind or member."""
        names = {entry.name for entry in fields(Fault)}
        for wish in wishes:
            if unknown := sorted(set(wish) - names):
                raise ValueError(f"a fault has no {', '.join(unknown)}; it has: {', '.join(sorted(names))}")
        faults = [Fault(**wish) for wish in wishes]
        for kind in (fault.kind for fault in faults if fault.kind not in self._kinds):
            raise ValueError(f"unknown kind of fault {kind!r}; there are: {', '.join(self._kinds)}")
        self._faults = faults

    def document(self) -> list[dict[str, Any]]:
        """Return the faults in force, with the calls that each is still for."""
        return [asdict(fault) for fault in self._faults]

    def take(self, service: str, action: str) -> Fault | None:
        """Return the fault of this call, if any; one of its `times` is used up."""
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
    """A signal for process `pid` at the `call`-th matching call, before or after the call's effect.

    After KILL the client hears no answer. INT is Ctrl-C: the call is answered as usual. The process must
    belong to the same user and must have begun after the stand-in, as clients in tests do. With `since`, the
    first call of an action that matches it is call 1: what a client polls before that varies.
    """

    pid: int
    call: int = 1
    when: str = "before"
    service: str = ".*"
    action: str = ".*"
    signal: str = "KILL"
    since: str = ""
    _process: processes.Process = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.when not in ("before", "after"):
            raise ValueError(f"when is {self.when!r}; it is before or after")
        if self.call < 1:
            raise ValueError(f"call is {self.call}; the first from now is 1")
        if self.signal not in ("KILL", "INT"):
            raise ValueError(f"signal is {self.signal!r}; it is KILL or INT")
        if self.pid <= 1:
            raise ValueError(f"pid is {self.pid}; it is no client's")
        self._process = processes.client(self.pid)

    def document(self) -> dict[str, Any]:
        """Return the order as /_control shows it."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}

    def is_due(self, service: str, action: str) -> bool:
        """Return whether it is due with this call, and count the call if it matches."""
        if self.since and not re.fullmatch(self.since, action):
            return False
        self.since = ""
        if not (re.fullmatch(self.service, service) and re.fullmatch(self.action, action)):
            return False
        self.call -= 1
        return self.call == 0

    def strike(self) -> None:
        """Send the signal, unless the process has ended and another one may have its number."""
        if processes.find(self.pid) != self._process:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.Signals[f"SIG{self.signal}"])
