"""A server on loopback that passes requests on to another one, and fails the requests that a test selects."""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import ssl
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Self

from cloudrec_sandbox.core import certificates
from tests.standins.answers import changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["answer", "reset", "lose", "hang", "truncate", "drip", "twice", "html", "flip", "change"]
KINDS: tuple[Kind, ...] = ("answer", "reset", "lose", "truncate", "drip", "twice", "html", "flip")
_ACTION = re.compile(rb"(?:.*&)?Action=(\w+)", re.DOTALL)
_RANDOM = re.compile(r"[0-9a-f]{32}")  # names that differ from run to run
_PAGE = b"<html><head><title>Sign in</title></head><body>captive portal</body></html>"
_DRIPS, _DRIP_S = 20, 0.05
_OK = 200
_EMPTY = {204, 304}  # by HTTP, answers without a body
_CONTROL = "/_control"  # of a stand-in, which is no part of the service
_STREAM = re.compile(
    r"[?&](watch|follow)=(true|True|1)"
)  # of Kubernetes: the answer ends with the connection
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    size: int  # of the body
    action: str = ""  # of the query protocol of AWS, whose calls have one path


@dataclass(slots=True)
class Fault:
    """What happens to requests: answered in the server's stead, cut off, done but unanswered, unheard.

    Or the answer is truncated, sent slowly, replaced by a page of HTML with 200, or has one bit flipped; or
    the server gets the request twice, of which the client sees the second answer; or (`change`) the answer is
    well-formed HTTP with other content.
    """

    kind: Kind
    method: str = ""
    holding: str = ""  # in the path and query
    times: int = 1
    skip: int = 0  # so many that fit are let through first
    status: int = 503
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seed: str = ""  # of the change

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
    """Passes on what `faults` leave; `requests` is what clients asked for.

    Args:
        upstream_port: of the server on this machine.
        authority: file with the certificate authority of a server that speaks HTTPS; then the proxy does,
            too, with a certificate of another authority, whose file is `authority` of the proxy.
    """

    # Whether the server sees its own name and address in requests, which cloudrec's stand-ins check, and the
    # client sees the proxy's address in answers.
    is_hidden = False

    def __init__(self, upstream_port: int, *, authority: str = "") -> None:
        self.upstream_port = upstream_port
        self._folder = TemporaryDirectory(prefix="faulty-proxy-")
        self.authority = ""
        self.tls: ssl.SSLContext | None = None  # of the connections to the server
        tls: ssl.SSLContext | None = None
        if authority:
            made, tls = certificates.make(Path(self._folder.name))
            self.authority, self.tls = str(made), ssl.create_default_context(cafile=authority)
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(Handler, tls)
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
        self._folder.cleanup()

    @property
    def address(self) -> str:
        """The proxy's URL."""
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.port}"

    def to_server(self, text: bytes) -> bytes:
        """Return what a client sends with the server's address for the proxy's."""
        return self._readdressed(text, self.port, self.upstream_port)

    def to_client(self, text: bytes) -> bytes:
        """Return what the server sends with the proxy's address for the server's."""
        return self._readdressed(text, self.upstream_port, self.port)

    def _readdressed(self, text: bytes, port: int, other: int) -> bytes:
        if not self.is_hidden:
            return text
        for form in ("127.0.0.1:%d", "127.0.0.1%%3A%d"):  # the second in a query
            text = text.replace((form % port).encode(), (form % other).encode())
        return text

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


class SeededFaults(FaultyProxy):
    """Draws a fault for some requests; a seed and a request always give the same fault.

    The draw is by method, path and how often it was asked before, whatever the order of threads.
    CLOUDREC_FAULTS_SEED replaces the seed, and a test prints it.
    """

    is_hidden = True

    def __init__(
        self,
        upstream_port: int,
        *,
        seed: int,
        percent: float,
        kinds: Sequence[Kind] = KINDS,
        authority: str = "",
    ) -> None:
        super().__init__(upstream_port, authority=authority)
        self.seed = int(os.environ.get("CLOUDREC_FAULTS_SEED") or seed)
        self.percent, self._kinds = percent, kinds
        self.struck: list[tuple[Kind, str]] = []
        self._asked: Counter[str] = Counter()

    def begin(self, seed: int, percent: float) -> None:
        """Draw by another seed from now on, as a new proxy would."""
        with self.lock:
            self.seed, self.percent = seed, percent
            self._asked.clear()

    def fault_of(self, request: Request) -> Fault | None:
        """Record a request, and return the fault for it, if any."""
        if request.path.startswith(_CONTROL):
            return None
        if ordered := super().fault_of(request):
            return ordered
        path = _RANDOM.sub("*", request.path)
        what = f"{request.method} {path} {request.action}"
        with self.lock:
            self._asked[what] += 1
            draw = random.Random(f"{self.seed} {what} {self._asked[what]}")  # noqa: S311 - no secret
            if draw.random() * 100 >= self.percent:
                return None
            kind = draw.choice(self._kinds)
            self.struck.append((kind, what))
        status = draw.choice((500, 503))
        return Fault(
            kind,
            status=status,
            headers={"Retry-After": "1"} if status == 503 else {},
            seed=f"{self.seed} {what} {self._asked[what]} change",
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        super().__init__(("127.0.0.1", 0), handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; its handshake is the work of the connection's own thread."""
        accepted, address = super().get_request()
        if self._tls is not None:
            accepted = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        return accepted, address

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients and faults break connections."""


class _Handler(BaseHTTPRequestHandler):
    owner: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def _pass_on(self) -> None:
        body = self._body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        named = _ACTION.match(body[:2000])
        action = named[1].decode() if named else ""
        request = Request(self.command, self.path, headers, len(body), action)
        fault = self.owner.fault_of(request)
        kind = fault.kind if fault is not None else ""
        if kind == "twice":
            self._ask_upstream(body, change="lose")
        if kind in {"", "twice", "lose", "truncate", "drip", "flip", "change"}:
            self._ask_upstream(body, change=kind, seed=fault.seed if fault is not None else "")
        elif kind == "html":
            self._answer(200, {"Content-Type": "text/html"}, _PAGE)
        elif fault is not None and kind == "answer":
            self._answer(fault.status, dict(fault.headers), fault.body)
        elif kind == "hang":
            self.owner.stopping.wait(30)
        if kind in {"lose", "reset", "hang", "truncate"}:
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

    def _ask_upstream(self, body: bytes, *, change: str, seed: str = "") -> None:
        owner, body = self.owner, self.owner.to_server(body)
        place: tuple[str, int] = ("127.0.0.1", owner.upstream_port)
        if owner.tls is None:
            connection = http.client.HTTPConnection(*place, timeout=180)
        else:
            connection = http.client.HTTPSConnection(*place, timeout=180, context=owner.tls)
        try:
            passed = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            path = owner.to_server(self.path.encode()).decode()
            connection.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
            for name, value in passed.items():
                is_named = self.owner.is_hidden and name.lower() == "host"
                connection.putheader(name, f"127.0.0.1:{self.owner.upstream_port}" if is_named else value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            if _STREAM.search(self.path) and response.status == _OK:
                self._stream(response, change)
                return
            content = owner.to_client(response.read())
            if change == "change" and self.command != "HEAD" and response.status not in _EMPTY:
                content = changed(content, random.Random(seed))  # noqa: S311 - no secret
            if change != "lose":
                kept = {
                    name: owner.to_client(value.encode("latin-1")).decode("latin-1")
                    for name, value in response.getheaders()
                    if name.lower() not in _HOP
                }
                length = response.getheader("Content-Length") if self.command == "HEAD" else None
                self._answer(response.status, kept, content, length, change)
        finally:
            connection.close()

    def _stream(self, response: http.client.HTTPResponse, change: str) -> None:
        """Pass an answer on as its pieces come; the first one only, if it is to be cut."""
        self.send_response_only(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := response.read1(1 << 16):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            if change in {"lose", "truncate"}:
                return
        self.wfile.write(b"0\r\n\r\n")

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, length: str | None = None, change: str = ""
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        middle = len(body) // 2
        if self.command == "HEAD":
            return
        if change == "flip" and body:
            body = body[:middle] + bytes([body[middle] ^ 0x80]) + body[middle + 1 :]
        if change != "drip":
            self.wfile.write(body[:middle] if change == "truncate" else body)
            return
        piece = max(1, len(body) // _DRIPS)
        for place in range(0, len(body), piece):
            self.wfile.write(body[place : place + piece])
            self.wfile.flush()
            self.owner.stopping.wait(_DRIP_S)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
