"""Google's answer to a call: its method, the checks before the handler, the handler's result."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.services.cluster_manager.transports.grpc import ClusterManagerGrpcTransport
from google.cloud.lustre_v1.services.lustre.transports.grpc import LustreGrpcTransport

from cloudrec_sandbox.core import engine
from cloudrec_sandbox.core.snapshots import Snapshots
from cloudrec_sandbox.gcp import sdk
from cloudrec_sandbox.gcp.api import admission, protocol, schemas, tokens
from cloudrec_sandbox.gcp.api.apis import APIS
from cloudrec_sandbox.gcp.api.call import Call
from cloudrec_sandbox.gcp.api.errors import GcpError, ordered
from cloudrec_sandbox.gcp.api.protocol import Target
from cloudrec_sandbox.gcp.api.registry import Rest, Rpc, book
from cloudrec_sandbox.gcp.api.world import World
from cloudrec_sandbox.gcp.resources import operations

if TYPE_CHECKING:
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest, Reply

# The parameters that every method of REST takes.
_COMMON_QUERY = frozenset(
    ("$alt", "$fields", "alt", "fields", "key", "prettyPrint", "quotaUser", "userProject")
)


class Engine(engine.Engine[World, Target]):
    """Answers calls of Google's services."""

    def __init__(self) -> None:
        super().__init__(World(), book, Snapshots())
        self.tokens = tokens.Tokens()
        self._rpcs = sdk.methods(ClusterManagerGrpcTransport) | sdk.methods(LustreGrpcTransport)

    def identify(self, request: HttpRequest) -> Target:
        """Return the service and the method."""
        return protocol.identify(request)

    def reply(self, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
        """Return the result of the checks or of the handler."""
        try:
            return protocol.serialise(target, self._result(target, request, fault))
        except GcpError as error:
            return protocol.refuse(target, error)
        except Exception:  # noqa: BLE001 - the client gets the stand-in's own defect by name
            return self.defect(target, traceback.format_exc(limit=-6))

    def defect(self, target: Target, trace: str) -> Reply:
        """Return 501 with the trace."""
        return protocol.refuse(target, GcpError("UNIMPLEMENTED", trace))

    def _result(self, target: Target, request: HttpRequest, fault: Fault | None) -> Any:  # noqa: ANN401
        if fault and fault.kind != "lost":
            raise ordered(fault, target.service)
        method = target.method
        if method is None:
            what = target.action or f"{request.method} {request.path}"
            raise GcpError("UNIMPLEMENTED", f"this stand-in has no {target.service} {what}")
        if isinstance(method, Rpc):
            return self._over_grpc(target, method, request)
        return self._over_rest(target, method, request)

    def _over_grpc(self, target: Target, method: Rpc, request: HttpRequest) -> Any:  # noqa: ANN401
        """Answer a gRPC call. Insecure channels carry no token, so it may be missing, but not wrong."""
        message = self._rpcs[request.target].read(request.body)
        call = Call(self.world, target, request, params=_names(message), tokens=self.tokens)
        call.body = message
        token = request.lower.get("authorization")
        call.caller = self.tokens.caller(token) if token else tokens.CALLER
        admission.admit(call)
        return method.handler(call, message)

    def _over_rest(self, target: Target, method: Rest, request: HttpRequest) -> Any:  # noqa: ANN401
        call = Call(self.world, target, request, params=target.params, tokens=self.tokens)
        if not method.open:
            self._authenticate(call, method)
            admission.admit(call)
        call.body = schemas.read(request.body, method.body)
        return operations.replayed(call) or method.handler(call)

    def _authenticate(self, call: Call, method: Rest) -> None:
        """Refuse a request without a token, and one with an unknown parameter."""
        token = call.raw.lower.get("authorization")
        if token:
            call.caller = self.tokens.caller(token)
        elif APIS[call.service].anonymous:
            call.caller = tokens.CALLER
        else:
            raise tokens.missing()
        if unknown := sorted(set(call.query) - method.query - _COMMON_QUERY):
            raise GcpError(
                "INVALID_ARGUMENT",
                f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot bind query parameter.'
                f" Field '{unknown[0]}' could not be found in request message.",
            )


def _names(message: Any) -> dict[str, str]:  # noqa: ANN401 - any request of the SDK's
    """Return the names of the resources in a request."""
    raw = type(message).pb(message) if hasattr(type(message), "pb") else message
    found = {key: getattr(raw, key) for key in ("name", "parent") if getattr(raw, key, "")}
    if not found and hasattr(raw, "instance"):
        found = {"name": raw.instance.name}
    return found
