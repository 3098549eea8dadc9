"""What becomes of a call: faults and deaths that are due, our handlers, moto; its line among the calls."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec.sandbox.aws import protocol
from cloudrec.sandbox.aws.call import Call
from cloudrec.sandbox.aws.errors import AwsError, PassedOnError
from cloudrec.sandbox.aws.faults import Fault, Faults, Kill
from cloudrec.sandbox.aws.registry import chain
from cloudrec.sandbox.aws.snapshots import Snapshots
from cloudrec.sandbox.aws.upstream import Moto
from cloudrec.sandbox.aws.world import World

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from cloudrec.sandbox.aws.http import HttpRequest, Reply
    from cloudrec.sandbox.aws.protocol import Target


class Silence(Enum):
    """No reply, and how."""

    DROP = "the connection is closed"
    TIMEOUT = "nothing comes until the client has given up"


@dataclass
class Engine:
    """Answers calls. Everything is used under the world's lock."""

    world: World = field(default_factory=World)
    moto: Moto = field(default_factory=Moto)
    faults: Faults = field(default_factory=Faults)
    kill: Kill | None = None
    snapshots: Snapshots = field(default_factory=Snapshots)
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def lock(self) -> threading.RLock:
        """Held while a call is answered: moto knows no threads."""
        return self.world.lock

    def answer(self, request: HttpRequest) -> Reply | Silence:
        """The reply to `request`, or why there is none."""
        target = protocol.identify(request)
        with self.lock:
            defect = self._settle()
            line = self._note(target)
            death = self._death()
            if death and death.when == "before":
                return self._die(death, line)
            fault = self.faults.take(target.service, target.action)
            if fault and fault.kind in ("timeout", "drop"):
                line["status"] = fault.kind
                return Silence.TIMEOUT if fault.kind == "timeout" else Silence.DROP
            reply = defect(target) if defect else self._reply(target, request, fault)
            line["status"] = reply.status
            if fault and fault.kind == "lost":
                line["status"] = "lost"
                return Silence.DROP
            return self._die(death, line) if death else reply

    def _settle(self) -> Callable[[Target], Reply] | None:
        """Do what is due; where that fails, what to answer."""
        try:
            self.world.settle()
        except Exception:  # noqa: BLE001 - a defect of ours must reach the client, named
            trace = traceback.format_exc(limit=-6)
            return lambda target: _defect(target, trace)
        return None

    def _note(self, target: Target) -> dict[str, Any]:
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

    def _death(self) -> Kill | None:
        """Whose death comes with this call."""
        if self.kill is None:
            return None
        self.kill.call -= 1
        if self.kill.call > 0:
            return None
        death, self.kill = self.kill, None
        return death

    @staticmethod
    def _die(death: Kill, line: dict[str, Any]) -> Silence:
        death.strike()
        line["status"] = f"killed {death.when}"
        return Silence.DROP

    def _reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        try:
            _check(target, request, fault)
            handlers = chain(target.service, target.action)
            return Call(self.world, target, request, handlers=handlers, last=self._ask_moto).pass_on()
        except AwsError as error:
            return protocol.refuse(target, error, str(uuid4()))
        except PassedOnError as passed:
            return passed.reply
        except Exception:  # noqa: BLE001 - a defect of ours or moto's must reach the client, named
            return _defect(target, traceback.format_exc(limit=-6))

    def _ask_moto(self, call: Call) -> Reply:
        try:
            return self.moto.answer(call.request)
        except NotImplementedError as error:
            raise _unknown(call.target, call.request) from error


def _defect(target: Target, trace: str) -> Reply:
    # Not 500: clients would try again, and a second try may hide what the first one broke.
    error = AwsError("SandboxDefect", trace, status=HTTPStatus.NOT_IMPLEMENTED)
    return protocol.refuse(target, error, str(uuid4()))


def _check(target: Target, request: HttpRequest, fault: Fault | None) -> None:
    """Refuse what is ordered to fail, and what there is not."""
    if fault and fault.kind != "lost":
        raise fault.error(target.service)
    if not target.action or not protocol.is_known(target):
        raise _unknown(target, request)
    protocol.refuse_unknown(target, request)


def _unknown(target: Target, request: HttpRequest) -> AwsError:
    what = target.action or f"{request.method} {request.path}"
    return AwsError(
        "NotImplemented",
        f"this stand-in has no {target.service} {what}",
        status=HTTPStatus.NOT_IMPLEMENTED,
    )
