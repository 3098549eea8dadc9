"""What becomes of a call: faults and deaths that are due, the cloud's answer; its line among the calls."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cloudrec.sandbox.book import W
from cloudrec.sandbox.faults import KINDS, Faults, Kill

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from cloudrec.sandbox.book import Book
    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest, Reply
    from cloudrec.sandbox.snapshots import Snapshots


class Silence(Enum):
    """No reply, and how."""

    DROP = "the connection is closed"
    TIMEOUT = "nothing comes until the client has given up"


class Target(Protocol):
    """What a request is for, as the list of calls tells it."""

    @property
    def service(self) -> str:
        """The service's short name."""

    @property
    def action(self) -> str:
        """The operation."""

    @property
    def iam_action(self) -> str:
        """The permission that it needs."""


T = TypeVar("T", bound=Target)


class Engine(ABC, Generic[W, T]):
    """Answers calls; a stand-in tells what a request is for and what its cloud says to it.

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

    @abstractmethod
    def identify(self, request: HttpRequest) -> T:
        """What the request is for; it never fails."""

    @abstractmethod
    def reply(self, target: T, request: HttpRequest, fault: Fault | None) -> Reply:
        """The cloud's answer, `fault` being ordered for this call; it never fails."""

    @abstractmethod
    def defect(self, target: T, trace: str) -> Reply:
        """The answer where the stand-in itself is broken.

        Never 500: clients would try again, and a second try may hide what the first one broke.
        """

    def reset(self) -> None:
        """Back to an empty account: nothing exists, nothing is ordered, nobody called; the clock goes on."""
        self.world.clear()
        self.faults.order([])
        self.kill = None
        self.calls.clear()

    @property
    def lock(self) -> threading.RLock:
        """Held while a call is answered: no stand-in's state knows threads."""
        return self.world.lock

    def answer(self, request: HttpRequest) -> Reply | Silence:
        """The reply to `request`, or why there is none."""
        target = self.identify(request)
        with self.lock:
            defect = self._settle()
            line = self._note(target)
            death = self._death(target)
            if death and death.when == "before":
                if silence := self._strike(death, line):
                    return silence
                death = None
            fault = self.faults.take(target.service, target.action)
            if fault and fault.kind in ("timeout", "drop"):
                line["status"] = fault.kind
                return Silence.TIMEOUT if fault.kind == "timeout" else Silence.DROP
            reply = defect(target) if defect else self.reply(target, request, fault)
            line |= {"status": reply.status, "iam_action": target.iam_action}
            if fault and fault.kind == "lost":
                line["status"] = "lost"
                return Silence.DROP
            return (self._strike(death, line) if death else None) or reply

    def _settle(self) -> Callable[[T], Reply] | None:
        """Do what is due; where that fails, what to answer."""
        try:
            self.world.settle()
        except Exception:  # noqa: BLE001 - a defect of ours must reach the client, named
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

    def _death(self, target: T) -> Kill | None:
        """Whose death comes with this call."""
        if self.kill is None or not self.kill.is_due(target.service, target.action):
            return None
        death, self.kill = self.kill, None
        return death

    @staticmethod
    def _strike(death: Kill, line: dict[str, Any]) -> Silence | None:
        """Send the signal; None where whoever asked lives on to hear the answer."""
        death.strike()
        if death.signal != "KILL":
            return None
        line["status"] = f"killed {death.when}"
        return Silence.DROP
