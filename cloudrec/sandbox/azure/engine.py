"""Azure's answer to a call: Entra's, the price list's, or ARM's."""

from __future__ import annotations

import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from cloudrec.sandbox import engine
from cloudrec.sandbox.azure import entra, gate, registry, target
from cloudrec.sandbox.azure.call import Call, Caller
from cloudrec.sandbox.azure.errors import ArmError, ordered
from cloudrec.sandbox.azure.registry import book
from cloudrec.sandbox.azure.target import Target
from cloudrec.sandbox.faults import KINDS
from cloudrec.sandbox.http import Reply, json_reply
from cloudrec.sandbox.snapshots import Snapshots
from cloudrec.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest

ASYNC = "async"  # the call succeeds, and the operation that it starts fails
_NOBODY = Caller(principal="", client="", tenant="")


class Engine(engine.Engine[World, Target]):
    """Answers calls of Azure."""

    fault_kinds: ClassVar[Sequence[str]] = (*KINDS, ASYNC)

    def __init__(self) -> None:
        super().__init__(World(book.default_durations), book, Snapshots())

    def identify(self, request: HttpRequest) -> Target:
        """The service and the operation."""
        return target.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """What Azure says."""
        try:
            told = self._told(target, request, fault)
        except ArmError as error:
            told = error.reply()
        except Exception:  # noqa: BLE001 - a defect of ours must reach the client, named
            return self.defect(target, traceback.format_exc(limit=-6))
        name = ("x-ms-request-id", str(uuid4()))
        return Reply(status=told.status, headers=(*told.headers, name), body=told.body)

    def _told(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        if target.service == "entra":
            return entra.answer(self.world, target, request, fault)
        if fault is not None and fault.kind not in ("lost", ASYNC):
            raise ordered(fault, target.service)
        if target.service == "retail":
            call = Call(world=self.world, target=target, request=request, caller=_NOBODY)
            found = registry.routes[target.method, "retail/prices"][1](call)
            return found if isinstance(found, Reply) else json_reply(found)
        later = fault if fault is not None and fault.kind == ASYNC else None
        return gate.pass_through(self.world, target, request, later)

    def defect(self, target: Target, trace: str) -> Reply:
        """501 with the trace."""
        return ArmError("SandboxDefect", trace, status=HTTPStatus.NOT_IMPLEMENTED).reply()
