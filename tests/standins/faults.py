"""A server on loopback that passes requests on to another one, and fails the requests that a test selects."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["answer", "reset", "lose", "hang"]
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    size: int  # of the body


@dataclass(slots=True)
class Fault:
    """What happens to requests: answered in the server's stead, cut off, done but unanswered, unheard."""

    kind: Kind
    method: str = ""
    holding: str = ""  # in the path and query
    times: int = 1
    skip: int = 0  # so many that fit are let through first
    status: int = 503
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def strikes(self, request: Request) -> bool:
        """Count a request, and return whether it must fail."""
        if self.method not in {"", request.method} or self.holding not in request.path or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class FaultyProxy:
    """Passes on what `faults` leave; `requests` is what clients asked for."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fault_of(self, request: Request) -> Fault | None:
        """Record a request, and return the fault for it, if any."""
        with self.lock:
            self.requests.append(request)
            return next((fault for fault in self.faults if fault.strikes(request)), None)

    def clear(self) -> None:
        """Forget requests and faults."""
        with self.lock:
            self.requests.clear()
            self.faults.clear()


class _Handler(BaseHTTPRequestHandler):
    owner: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def _pass_on(self) -> None:
        body = self._body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, len(body))
        fault = self.owner.fault_of(request)
        if fault is None or fault.kind == "lose":
            self._ask_upstream(body, answer=fault is None)
        elif fault.kind == "answer":
            self._answer(fault.status, dict(fault.headers), fault.body)
        elif fault.kind == "hang":
            self.owner.stopping.wait(30)
        if fault is not None and fault.kind != "answer":
            self._reset()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _pass_on  # noqa: N815 - the base's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _ask_upstream(self, body: bytes, *, answer: bool) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.owner.upstream_port, timeout=180)
        try:
            passed = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in passed.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            content = response.read()
            if answer:
                kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP}
                length = response.getheader("Content-Length") if self.command == "HEAD" else None
                self._answer(response.status, kept, content, length)
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
