"""A server of gRPC on loopback that passes calls on to another one, and fails those that a proxy selects."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import grpc

from tests.standins.answers import changed_message
from tests.standins.faults import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standins.faults import Fault, FaultyProxy

    _Answer = Callable[[str, bytes, grpc.ServicerContext], bytes]

_WORKERS = 32
_TIMEOUT_S = 60.0
# As gRPC's clients report them: https://grpc.github.io/grpc/core/md_doc_http-grpc-status-mapping.html
_OF_STATUS = {500: grpc.StatusCode.UNKNOWN, 503: grpc.StatusCode.UNAVAILABLE}
_RESET = (grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer")
_PAGE = (grpc.StatusCode.UNKNOWN, "Stream removed: Received http2 header with content-type: text/html")


class FaultyCalls:
    """Passes on what the faults of a proxy leave; gRPC has no answer that comes in pieces.

    Args:
        upstream: host and port of the server.
        owner: the proxy that records calls as requests of the method POST, and draws their faults.
    """

    def __init__(self, upstream: str, owner: FaultyProxy) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC prints nothing to stderr
        self._owner = owner
        self._channel = grpc.insecure_channel(upstream)
        workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="faulty-grpc")
        self._server = grpc.server(workers, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handler(self._answer),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None)
        self._channel.close()

    def _answer(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        fault = self._owner.fault_of(Request("POST", method, {}, len(body)))
        kind = fault.kind if fault is not None else ""
        if kind == "html":
            context.abort(*_PAGE)
        if fault is not None and kind == "answer":
            context.abort(_OF_STATUS[fault.status], "the service fails")
        if kind == "reset":
            context.abort(*_RESET)
        if kind == "twice":
            self._ask(method, body, context)
        status, answer = self._ask(method, body, context)
        if kind in {"lose", "truncate"}:
            context.abort(*_RESET)
        if status is not None:
            context.set_trailing_metadata(status.trailing_metadata() or ())
            context.abort(status.code(), status.details())
        return _changed(answer, fault)

    def _ask(
        self, method: str, body: bytes, context: grpc.ServicerContext
    ) -> tuple[Any, bytes]:  # the library's error of a call is of a private class
        """Return the server's refusal, or nothing and its answer."""
        call = self._channel.unary_unary(method)
        metadata = [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]
        try:
            return None, call(body, timeout=_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            return error, b""


def _changed(answer: bytes, fault: Fault | None) -> bytes:
    if fault is not None and fault.kind == "change":
        return changed_message(answer, random.Random(fault.seed))  # noqa: S311 - no secret
    if fault is None or fault.kind != "flip" or not answer:
        return answer
    middle = len(answer) // 2
    return answer[:middle] + bytes([answer[middle] ^ 0x80]) + answer[middle + 1 :]


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, answer: _Answer) -> None:
        self._pass_on = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Return one handler for every method, whose messages stay bytes."""
        return grpc.unary_unary_rpc_method_handler(partial(self._pass_on, details.method))
