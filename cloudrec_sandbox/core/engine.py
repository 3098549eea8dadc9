"""What a stand-in does with a call: faults and kills that are due, the answer, its line among the calls."""

from __future__ import annotations

import base64
import traceback
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cloudrec_sandbox.core.book import W
from cloudrec_sandbox.core.faults import KINDS, Faults, Kill

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from cloudrec_sandbox.core.book import Book
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest, Reply
    from cloudrec_sandbox.core.snapshots import Snapshots


class Silence(Enum):
    """Why a request gets no reply."""

    DROP = "the connection is closed"
    TIMEOUT = "nothing comes until the client has given up"


class Target(Protocol):
    """What a request is for, as the list of calls returns it."""

    @property
    def service(self) -> str:
        """Return the service's short name."""

    @property
    def action(self) -> str:
        """Return the operation."""

    @property
    def iam_action(self) -> str:
        """Return the permission that the operation needs."""


T = TypeVar("T", bound=Target)


class Engine(ABC, Generic[W, T]):
    """Answers calls. A subclass says what a request is for and how its cloud answers.

    Everything is used under the world's lock.
    """

    fault_kinds: ClassVar[Sequence[str]] = KINDS

    def __init__(self, world: W, book: Book[W], snapshots: Snapshots[W]) -> None:
        self.world = world
        self.book = book
        self.snapshots = snapshots
        self.faults = Faults(self.fault_kinds)
        self.kill: Kill | None = None
        self.calls: list[dict[str, Any]] = []
        self.keeps_requests = False
        self.requests: list[dict[str, Any]] = []

    @abstractmethod
    def identify(self, request: HttpRequest) -> T:
        """Return what the request is for; it never fails."""

    @abstractmethod
    def reply(self, target: T, request: HttpRequest, fault: Fault | None) -> Reply:
        """Return the cloud's answer; it never fails. `fault` is the fault that is ordered for this call."""

    @abstractmethod
    def defect(self, target: T, trace: str) -> Reply:
        """Return the answer to a call for which the stand-in itself is broken.

        Its status is never 500: clients would retry, and a second try may hide what the first one broke.
        """

    def reset(self) -> None:
        """Reset to an empty account: no resources, no orders, no recorded calls; the clock continues."""
        self.world.clear()
        self.faults.order([])
        self.kill = None
        self.calls.clear()
        self.keeps_requests = False
        self.requests.clear()

    @property
    def lock(self) -> threading.RLock:
        """Return the lock that is held while a call is answered: no stand-in's state is safe for threads."""
        return self.world.lock

    def answer(self, request: HttpRequest) -> Reply | Silence:
        """Return the reply to `request`, or why there is none."""
        target = self.identify(request)
        with self.lock:
            defect = self._settle()
            line = self._note(target)
            self._keep(line, request)
            death = self._death(target)
            if death and death.when == "before":
                if silence := self._strike(death, line):
                    return silence
                death = None
            fault = self.faults.take(target.service, target.action)
            if fault and fault.kind in ("timeout", "drop"):
                # These two kinds have no effect on the account: the request never reached the cloud.
                line["status"] = fault.kind
                return Silence.TIMEOUT if fault.kind == "timeout" else Silence.DROP
            reply = defect(target) if defect else self.reply(target, request, fault)
            line |= {"status": reply.status, "iam_action": target.iam_action}
            # The call has had its effect, and the client does not know: a retry must find the resource.
            if fault and fault.kind == "lost":
                line["status"] = "lost"
                return Silence.DROP
            return (self._strike(death, line) if death else None) or reply

    def _settle(self) -> Callable[[T], Reply] | None:
        """Do what is due; return how to answer if that fails, else None."""
        try:
            self.world.settle()
        except Exception:  # noqa: BLE001 - the client gets the stand-in's own defect by name
            trace = traceback.format_exc(limit=-6)
            return lambda target: self.defect(target, trace)
        return None

    def _note(self, target: T) -> dict[str, Any]:
        line = {
            "n": len(self.calls) + 1,
            "service": target.service,
            "action": target.action,
            "iam_action": target.iam_action,
            "status": None,
            "virtual_time": self.world.now(),
        }
        self.calls.append(line)
        return line

    def _keep(self, line: dict[str, Any], request: HttpRequest) -> None:
        """Keep the request as it arrived, without its headers, which have the caller's credentials."""
        if self.keeps_requests:
            self.requests.append(
                {
                    "n": line["n"],
                    "service": line["service"],
                    "action": line["action"],
                    "method": request.method,
                    "target": request.target,
                    "body": base64.b64encode(request.body).decode(),
                }
            )

    def _death(self, target: T) -> Kill | None:
        """Return the kill that is due with this call, and use it up; None if there is none."""
        if self.kill is None or not self.kill.is_due(target.service, target.action):
            return None
        death, self.kill = self.kill, None
        return death

    @staticmethod
    def _strike(death: Kill, line: dict[str, Any]) -> Silence | None:
        """Send the signal; return None if the client is still to get its answer."""
        death.strike()
        if death.signal != "KILL":
            return None
        line["status"] = f"killed {death.when}"
        return Silence.DROP
