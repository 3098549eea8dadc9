"""The API server's answer to a call."""

from __future__ import annotations

import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from cloudrec.sandbox import engine
from cloudrec.sandbox.faults import KINDS
from cloudrec.sandbox.kubernetes import access, discovery, errors, gate, target
from cloudrec.sandbox.kubernetes.target import Target
from cloudrec.sandbox.kubernetes.world import Cluster, book
from cloudrec.sandbox.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest, Reply


class Engine(engine.Engine[Cluster, Target]):
    """Answers calls of Kubernetes."""

    fault_kinds: ClassVar[Sequence[str]] = KINDS

    def __init__(self) -> None:
        super().__init__(Cluster(book.default_durations), book, Snapshots())

    def identify(self, request: HttpRequest) -> Target:
        """Verb and place."""
        return target.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """What the API server says."""
        try:
            return self._told(target, request, fault)
        except errors.ApiError as error:
            return error.reply()
        except Exception:  # noqa: BLE001 - a defect of ours must reach the client, named
            return self.defect(target, traceback.format_exc(limit=-6))

    def _told(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        store = self.world.store
        user = access.user_of(store, store.tokens, request.lower.get("authorization", ""))
        if fault is not None and fault.kind != "lost":
            raise _ordered(fault)
        if not target.plural:
            host = request.lower.get("host", "")
            discovery.check(user, target.path)
            return discovery.answer(store.resources, target.path, host)
        return gate.pass_through(self.world, target, request, user)

    def defect(self, target: Target, trace: str) -> Reply:
        """501 with the trace."""
        return errors.ApiError(
            HTTPStatus.NOT_IMPLEMENTED, "SandboxDefect", f"{target.action}: {trace}"
        ).reply()


def _ordered(fault: Fault) -> errors.ApiError:
    """The refusal that /_control ordered."""
    if fault.kind == "throttle":
        return errors.too_many("the server has received too many requests and has asked us to try again", 1)
    if fault.kind == "5xx":
        return errors.ApiError(
            HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "Internal error occurred: ordered by /_control"
        )
    return errors.ApiError(fault.status, fault.code, fault.message)
