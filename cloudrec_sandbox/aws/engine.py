"""AWS's answer to a call: the stand-in's handlers, then moto."""

from __future__ import annotations

import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudrec_sandbox.aws.api import protocol, wire
from cloudrec_sandbox.aws.api.call import Call
from cloudrec_sandbox.aws.api.errors import AwsError, PassedOnError, ordered
from cloudrec_sandbox.aws.api.protocol import Target
from cloudrec_sandbox.aws.api.registry import book, chain
from cloudrec_sandbox.aws.api.snapshots import Snapshots
from cloudrec_sandbox.aws.api.upstream import Moto
from cloudrec_sandbox.aws.api.world import World
from cloudrec_sandbox.core import engine

if TYPE_CHECKING:
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest, Reply


class Engine(engine.Engine[World, Target]):
    """Answers calls of AWS."""

    def __init__(self) -> None:
        super().__init__(World(), book, Snapshots())
        self.moto = Moto()

    def reset(self) -> None:
        """Reset to an empty account, in moto too."""
        self.moto.reset()
        super().reset()

    def identify(self, request: HttpRequest) -> Target:
        """Return the service and the operation."""
        return protocol.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """Return the reply of the handlers or of moto."""
        try:
            _check(target, request, fault)
            handlers = chain(target.service, target.action)
            return Call(self.world, target, request, handlers=handlers, last=self._ask_moto).pass_on()
        except AwsError as error:
            return protocol.refuse(target, error, str(uuid4()))
        except PassedOnError as passed:
            return passed.reply
        except Exception:  # noqa: BLE001 - the client gets the stand-in's or moto's defect by name
            return self.defect(target, traceback.format_exc(limit=-6))

    def defect(self, target: Target, trace: str) -> Reply:
        """Return 501 with the trace."""
        error = AwsError("SandboxDefect", trace, status=HTTPStatus.NOT_IMPLEMENTED)
        return protocol.refuse(target, error, str(uuid4()))

    def _ask_moto(self, call: Call) -> Reply:
        try:
            return self.moto.answer(call.request)
        except NotImplementedError as error:
            raise _unknown(call.target, call.request) from error


def _check(target: Target, request: HttpRequest, fault: Fault | None) -> None:
    """Refuse what is ordered to fail, and operations that do not exist."""
    if fault and fault.kind != "lost":
        raise ordered(fault, target.service)
    if not target.action or not protocol.is_known(target):
        raise _unknown(target, request)
    protocol.refuse_unknown(target, request)
    wire.refuse_mistyped(target, request)


def _unknown(target: Target, request: HttpRequest) -> AwsError:
    what = target.action or f"{request.method} {request.path}"
    return AwsError(
        "NotImplemented",
        f"this stand-in has no {target.service} {what}",
        status=HTTPStatus.NOT_IMPLEMENTED,
    )
