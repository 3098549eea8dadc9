"""gRPC's side of the server: it passes each call to the engine as an HTTP/2 request."""

from __future__ import annotations

import base64
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from cloudrec_sandbox.core.engine import Silence
from cloudrec_sandbox.core.http import HttpRequest, Reply
from cloudrec_sandbox.core.server import HOST
from cloudrec_sandbox.gcp.api.protocol import GRPC

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.engine import Engine

_WORKERS = 64  # a call without an answer keeps one
_WAIT_S = 600.0  # the longest time that it keeps it
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class RpcServer:
    """Answers gRPC without TLS on a free port of 127.0.0.1."""

    def __init__(self, engine: Engine) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC prints nothing to stderr
        workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="grpc")
        self._server = grpc.server(workers, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handler(engine),))
        self.address = f"{HOST}:{self._server.add_insecure_port(f'{HOST}:0')}"
        self._server.start()

    def stop(self) -> None:
        """Stop at once."""
        self._server.stop(grace=None)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Return the engine's handler for every method, unknown ones too."""
        return grpc.unary_unary_rpc_method_handler(partial(self._answer, details.method))

    def _answer(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        headers = {key: _text(value) for key, value in context.invocation_metadata()}
        request = HttpRequest(
            method="POST", target=method, headers={**headers, "content-type": GRPC}, body=body
        )
        reply = self._engine.answer(request)
        if isinstance(reply, Reply):
            return _body(reply, context)
        if reply is Silence.TIMEOUT:
            gone = threading.Event()
            if context.add_callback(gone.set):
                gone.wait(_WAIT_S)
        context.abort(grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer")
        raise AssertionError("abort does not return")


def _body(reply: Reply, context: grpc.ServicerContext) -> bytes:
    headers = dict(reply.headers)
    code = int(headers["grpc-status"])
    if code:
        if details := headers.get("grpc-status-details-bin"):
            context.set_trailing_metadata((("grpc-status-details-bin", base64.b64decode(details)),))
        context.abort(_CODES[code], headers["grpc-message"])
    return reply.body


def _text(value: Any) -> str:  # noqa: ANN401 - bytes for binary headers
    return value if isinstance(value, str) else base64.b64encode(value).decode()
