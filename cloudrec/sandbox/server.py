"""The HTTP server: keeps connections open, reads requests, sends replies or none."""

from __future__ import annotations

import json
import select
import ssl
import sys
import traceback
from abc import abstractmethod
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from cloudrec.sandbox import control
from cloudrec.sandbox.engine import Engine, Silence
from cloudrec.sandbox.http import BrokenStreamError, HttpRequest, Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
_CONTROL = "/_control"
_WAIT_S = 600.0  # the longest that a silent answer keeps a thread
_SNAPSHOTS = {"/save": control.save, "/restore": control.restore}


class SandboxServer(ThreadingHTTPServer):
    """Answers for a whole cloud on one port of 127.0.0.1 (0: a free one); with a `tls` context over HTTPS."""

    daemon_threads = True  # a silent answer must not keep the process alive
    request_queue_size = 128  # clients of one test open dozens of connections at once

    def __init__(self, port: int, engine: Engine[Any, Any], *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__((HOST, port), _Handler)
        self.engine = engine
        self._tls = tls

    @property
    def address(self) -> str:
        """Its URL."""
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.server_port}"

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Serve one connection; hands are shaken in its own thread, where they hold up nobody else."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        try:
            secured = self._tls.wrap_socket(request, server_side=True)
        except OSError:
            return  # a client that does not trust us, or has given up, is no news
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Say nothing of a client that died; all else is a defect to be seen."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)

    @abstractmethod
    def announcement(self) -> dict[str, Any]:
        """What a client needs to reach it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # a reply's head and body leave together

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: stdout has one line, and stderr none."""

    def handle_expect_100(self) -> bool:
        """Tell the client to go on at once: the answer would else wait in the buffer."""
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _serve(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # a client that has given up is no news
            self._answer()

    def _answer(self) -> None:
        request = HttpRequest(
            method=self.command, target=self.path, headers=dict(self.headers.items()), body=self._body()
        )
        engine = cast("SandboxServer", self.server).engine
        if urlsplit(self.path).path.startswith(_CONTROL):
            self._send(_control(engine, request))
            return
        reply = engine.answer(request)
        if isinstance(reply, Reply):
            self._send(reply)
            return
        self.close_connection = True
        if reply is Silence.TIMEOUT:
            select.select([self.connection], [], [], _WAIT_S)  # readable when the client hangs up

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._exactly(int(self.headers.get("Content-Length") or 0))
        body = bytearray()
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            body += self._exactly(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue  # trailers
        return bytes(body)

    def _exactly(self, size: int) -> bytes:
        """A request that was cut short has no effect: whoever sent it died over it."""
        data = self.rfile.read(size)
        if len(data) < size:
            self.close_connection = True
            raise ConnectionError(f"{len(data)} of {size} bytes came")
        return data

    def _send(self, reply: Reply) -> None:
        if reply.stream is not None:
            self._send_stream(reply, reply.stream)
            return
        self.send_response_only(reply.status)
        has_length = False
        for name, value in reply.headers:
            lower = name.lower()
            has_length |= lower == "content-length"
            if lower not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or reply.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        if not has_length:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if not bodiless:
            self.wfile.write(reply.body)
        self.wfile.flush()

    def _send_stream(self, reply: Reply, stream: Iterator[bytes]) -> None:
        """Send each piece as it comes, in chunks, until there are no more or the client has hung up."""
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._send_chunk(reply.body)
        hung_up = select.poll()  # `select` knows no more than 1024 files
        hung_up.register(self.connection, select.POLLIN)
        try:
            for piece in stream:
                self._send_chunk(piece)
                if hung_up.poll(0):
                    self.close_connection = True
                    return  # no client says anything while it listens: it has gone
        except BrokenStreamError:
            self.close_connection = True
            return
        finally:
            with suppress(AttributeError):
                stream.close()  # type: ignore[attr-defined]  # only generators have something to close
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_chunk(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.flush()


def _control(engine: Engine[Any, Any], request: HttpRequest) -> Reply:
    parts = urlsplit(request.target)
    try:
        body = _control_document(engine, request, parts.path.removeprefix(_CONTROL), parse_qs(parts.query))
    except (ValueError, TypeError, KeyError) as error:
        return json_reply({"error": str(error)}, HTTPStatus.BAD_REQUEST)
    except Exception:  # noqa: BLE001 - a defect of ours must reach whoever asked, named
        return json_reply({"error": traceback.format_exc(limit=-6)}, HTTPStatus.INTERNAL_SERVER_ERROR)
    return json_reply(body, HTTPStatus.OK)


def _control_document(
    engine: Engine[Any, Any], request: HttpRequest, path: str, query: dict[str, list[str]]
) -> Any:  # noqa: ANN401 - JSON
    if request.method == "GET" and path == "/calls":
        return control.calls(engine, int(query.get("since", ["0"])[0]))
    if request.method == "GET" and path == "/state":
        return control.state(engine)
    if request.method == "POST" and path in _SNAPSHOTS:
        _SNAPSHOTS[path](engine, json.loads(request.body))
        return control.document(engine)
    if path:
        raise ValueError(f"there is no {request.method} {_CONTROL}{path}")
    if request.method == "POST":
        control.change(engine, json.loads(request.body))
    return control.document(engine)
