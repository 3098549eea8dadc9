"""AWS's answer to a call: our handlers, then moto."""

from __future__ import annotations

import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudrec.sandbox import engine
from cloudrec.sandbox.aws import protocol
from cloudrec.sandbox.aws.call import Call
from cloudrec.sandbox.aws.errors import AwsError, PassedOnError, ordered
from cloudrec.sandbox.aws.protocol import Target
from cloudrec.sandbox.aws.registry import book, chain
from cloudrec.sandbox.aws.snapshots import Snapshots
from cloudrec.sandbox.aws.upstream import Moto
from cloudrec.sandbox.aws.world import World

if TYPE_CHECKING:
    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest, Reply


class Engine(engine.Engine[World, Target]):
    """Answers calls of AWS."""

    def __init__(self) -> None:
        super().__init__(World(), book, Snapshots())
        self.moto = Moto()

    def reset(self) -> None:
        """Back to an empty account, moto's too."""
        self.moto.reset()
        super().reset()

    def identify(self, request: HttpRequest) -> Target:
        """The service and the operation."""
        return protocol.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """What the handlers or moto say."""
        try:
            _check(target, request, fault)
            handlers = chain(target.service, target.action)
            return Call(self.world, target, request, handlers=handlers, last=self._ask_moto).pass_on()
        except AwsError as error:
            return protocol.refuse(target, error, str(uuid4()))
        except PassedOnError as passed:
            return passed.reply
        except Exception:  # noqa: BLE001 - a defect of ours or moto's must reach the client, named
            return self.defect(target, traceback.format_exc(limit=-6))

    def defect(self, target: Target, trace: str) -> Reply:
        """501 with the trace."""
        error = AwsError("SandboxDefect", trace, status=HTTPStatus.NOT_IMPLEMENTED)
        return protocol.refuse(target, error, str(uuid4()))

    def _ask_moto(self, call: Call) -> Reply:
        try:
            return self.moto.answer(call.request)
        except NotImplementedError as error:
            raise _unknown(call.target, call.request) from error


def _check(target: Target, request: HttpRequest, fault: Fault | None) -> None:
    """Refuse what is ordered to fail, and what there is not."""
    if fault and fault.kind != "lost":
        raise ordered(fault, target.service)
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
