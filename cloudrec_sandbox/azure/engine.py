"""Azure's answer to a call: Entra's, Blob Storage's, the price list's, or ARM's."""

from __future__ import annotations

import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from cloudrec_sandbox.azure import gate
from cloudrec_sandbox.azure.arm import registry, target
from cloudrec_sandbox.azure.arm.call import Call, Caller
from cloudrec_sandbox.azure.arm.errors import ArmError, ordered
from cloudrec_sandbox.azure.arm.registry import book
from cloudrec_sandbox.azure.arm.target import Target
from cloudrec_sandbox.azure.blob import service as blob
from cloudrec_sandbox.azure.identity import entra
from cloudrec_sandbox.core import engine
from cloudrec_sandbox.core.faults import KINDS
from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.core.snapshots import Snapshots
from cloudrec_sandbox.core.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest

ASYNC = "async"  # the call succeeds, and the operation that it starts fails
_NOBODY = Caller(principal="", client="", tenant="")


class Engine(engine.Engine[World, Target]):
    """Answers calls of Azure."""

    fault_kinds: ClassVar[Sequence[str]] = (*KINDS, ASYNC)

    def __init__(self) -> None:
        super().__init__(World(book.default_durations), book, Snapshots())

    def identify(self, request: HttpRequest) -> Target:
        """Return the service and the operation."""
        return target.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """Return Azure's answer."""
        try:
            reply = self._answer(target, request, fault)
        except ArmError as error:
            reply = error.reply()
        except Exception:  # noqa: BLE001 - the client gets the stand-in's own defect by name
            return self.defect(target, traceback.format_exc(limit=-6))
        name = ("x-ms-request-id", str(uuid4()))
        return Reply(status=reply.status, headers=(*reply.headers, name), body=reply.body)

    def _answer(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        if target.service == "entra":
            return entra.answer(self.world, target, request, fault)
        if target.service == "blob":
            return blob.answer(self.world, target, request, fault)
        if fault is not None and fault.kind not in ("lost", ASYNC):
            raise ordered(fault, target.service)
        if target.service == "retail":
            call = Call(world=self.world, target=target, request=request, caller=_NOBODY)
            found = registry.routes[target.method, "retail/prices"][1](call)
            return found if isinstance(found, Reply) else json_reply(found)
        later = fault if fault is not None and fault.kind == ASYNC else None
        return gate.pass_through(self.world, target, request, later)

    def defect(self, target: Target, trace: str) -> Reply:
        """Return 501 with the trace."""
        return ArmError("SandboxDefect", trace, status=HTTPStatus.NOT_IMPLEMENTED).reply()
