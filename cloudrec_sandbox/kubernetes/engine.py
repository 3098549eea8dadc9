"""The API server's answer to a call."""

from __future__ import annotations

import traceback
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from cloudrec_sandbox.core import engine
from cloudrec_sandbox.core.faults import KINDS
from cloudrec_sandbox.core.snapshots import Snapshots
from cloudrec_sandbox.kubernetes import discovery, gate, impersonation
from cloudrec_sandbox.kubernetes.api import options, target
from cloudrec_sandbox.kubernetes.api.target import Target
from cloudrec_sandbox.kubernetes.api.world import Cluster, book
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage import access

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest, Reply


class Engine(engine.Engine[Cluster, Target]):
    """Answers calls of Kubernetes."""

    fault_kinds: ClassVar[Sequence[str]] = KINDS

    def __init__(self) -> None:
        super().__init__(Cluster(book.default_durations), book, Snapshots())

    def identify(self, request: HttpRequest) -> Target:
        """Return verb and resource."""
        return target.identify(request)

    def answer(self, request: HttpRequest) -> Reply | engine.Silence:
        """Return the reply, or why there is none: callers outside the cluster's network may get none."""
        if self.world.store.tokens.is_outside(request.lower.get("authorization", "")):
            with self.lock:
                self._note(self.identify(request))["status"] = "unanswered"
            return engine.Silence.TIMEOUT
        return super().answer(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """Return the API server's answer."""
        made = self._reply(target, request, fault)
        # Clients compare the times in objects with this one, and both are of the stand-in's clock.
        date = formatdate(self.world.clock.now(), usegmt=True)
        return replace(made, headers=(*made.headers, ("Date", date)))

    def _reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        try:
            return self._answer(target, request, fault)
        except errors.ApiError as error:
            return error.reply()
        except Exception:  # noqa: BLE001 - the client gets the stand-in's own defect by name
            return self.defect(target, traceback.format_exc(limit=-6))

    def _answer(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        store = self.world.store
        user = access.user_of(store, store.tokens, request.lower.get("authorization", ""))
        user = impersonation.acting(store, user, request.lower)
        if fault is not None and fault.kind != "lost":
            raise _ordered(fault)
        if not target.plural:
            host = request.lower.get("host", "")
            discovery.check(user, target.path)
            if target.path == "/version" and target.verb != "get":
                raise options.not_allowed()
            return discovery.answer(self.world, target.path, host)
        return gate.pass_through(self.world, target, request, user)

    def defect(self, target: Target, trace: str) -> Reply:
        """Return 501 with the trace."""
        return errors.ApiError(
            HTTPStatus.NOT_IMPLEMENTED, "SandboxDefect", f"{target.action}: {trace}"
        ).reply()


def _ordered(fault: Fault) -> errors.ApiError:
    """Return the refusal that /_control ordered."""
    if fault.kind == "throttle":
        return errors.too_many("the server has received too many requests and has asked us to try again", 1)
    if fault.kind == "5xx":
        return errors.ApiError(
            HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "Internal error occurred: ordered by /_control"
        )
    return errors.ApiError(fault.status, fault.code, fault.message)
