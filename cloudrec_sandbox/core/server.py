"""The HTTP server: keeps connections open, reads requests, sends replies or none."""

from __future__ import annotations

import json
import select
import ssl
import sys
import threading
import traceback
from abc import abstractmethod
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from cloudrec_sandbox.core import control, linked
from cloudrec_sandbox.core.admission import TOKEN_VARIABLE, Admission
from cloudrec_sandbox.core.engine import Engine, Silence
from cloudrec_sandbox.core.http import BrokenStreamError, HttpRequest, Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "127.0.0.1"
_CONTROL = "/_control"
_ADDRESS_VARIABLE = "CLOUDREC_ADDRESS_SERVICE"
_WAIT_S = 600.0  # the longest time that a request without an answer keeps its thread
_SNAPSHOTS = {"/save": control.save, "/restore": control.restore}


class SandboxServer(ThreadingHTTPServer):
    """Answers for a whole cloud on one port of 127.0.0.1 (0: a free one); with a `tls` context over HTTPS."""

    daemon_threads = True  # a request without an answer must not keep the process alive
    request_queue_size = 128  # clients of one test open dozens of connections at once

    def __init__(self, port: int, engine: Engine[Any, Any], *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__((HOST, port), _Handler, bind_and_activate=False)
        # Bound here: the base would call `server_close`, which subclasses extend, for a port that is taken.
        try:
            self.server_bind()
            self.server_activate()
        except OSError:
            self.socket.close()
            raise
        self.engine = engine
        self._tls = tls
        self.admission = Admission(scheme="https" if tls else "http", port=self.server_port)

    @property
    def address(self) -> str:
        """Return the server's URL."""
        return f"{self.admission.scheme}://{HOST}:{self.server_port}"

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Serve one connection; its TLS handshake runs in its own thread and delays no other client."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        try:
            secured = self._tls.wrap_socket(request, server_side=True)
        except OSError:
            return  # a client that does not trust this certificate, or has given up, is no defect
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        """Ignore a client that hung up; print any other error, which is a defect."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)

    @abstractmethod
    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""


class CloudServer(SandboxServer):
    """A cloud's server, with a service that says from which address the cloud sees the user's machine."""

    def __init__(self, port: int, engine: Engine[Any, Any], *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port, engine, tls=tls)
        linked.declare(engine.book)
        self._addresses = _AddressServer(lambda: engine.world.state(linked.Caller).address)

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that every cloud announces."""
        return {
            _ADDRESS_VARIABLE: self._addresses.url,
            "CLOUDREC_CLUSTER_ADDONS": "none",  # its clusters have no API server, unless linked
            "CLOUDREC_SANDBOX_SPEED": f"{self.engine.world.clock.speed:g}",
            TOKEN_VARIABLE: self.admission.token,
        }

    def server_close(self) -> None:
        """Close both ports."""
        super().server_close()
        self._addresses.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that a reply's head and body are sent together

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
        """Print nothing: stdout has one line, and stderr none."""

    def handle_expect_100(self) -> bool:
        """Send the 100 at once: it would otherwise wait in the buffer until the reply."""
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _serve(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # a client that has given up is no defect
            self._answer()

    def _answer(self) -> None:
        request = HttpRequest(
            method=self.command, target=self.path, headers=dict(self.headers.items()), body=self._body()
        )
        server = cast("SandboxServer", self.server)
        is_control = urlsplit(self.path).path.startswith(_CONTROL)
        if is_control:
            refusal = server.admission.control_refusal(request.method, request.lower)
        else:
            refusal = server.admission.refusal(request.lower)
        if refusal is not None:
            self._send(json_reply({"error": refusal.message}, refusal.status))
            return
        if is_control:
            self._send(_control(server.engine, request))
            return
        reply = server.engine.answer(request)
        if isinstance(reply, Reply):
            self._send(reply)
            return
        self.close_connection = True
        if reply is Silence.TIMEOUT:
            poll = select.poll()
            poll.register(self.connection, select.POLLIN)
            poll.poll(_WAIT_S * 1000)  # readable when the client hangs up

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
        """Read `size` bytes. A request that was cut short has no effect: its client died while it sent."""
        data = self.rfile.read(size)
        if len(data) < size:
            self.close_connection = True
            raise ConnectionError(f"{len(data)} of {size} bytes came")
        return data

    def _send(self, reply: Reply) -> None:
        if reply.stream is not None:
            self._send_stream(reply, reply.stream)
            return
        if reply.upgrade is not None:
            self.close_connection = True
            self.send_response_only(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()
            reply.upgrade(self.connection)
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
        """Send each piece as it comes, in chunks, until the stream ends or the client hangs up."""
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._send_chunk(reply.body)
        hung_up = select.poll()  # `select` fails for file numbers from 1024 up
        hung_up.register(self.connection, select.POLLIN)
        try:
            for piece in stream:
                self._send_chunk(piece)
                if hung_up.poll(0):
                    self.close_connection = True
                    return  # a client sends nothing while it reads a stream: readable means closed
        except BrokenStreamError:
            self.close_connection = True
            return
        finally:
            with suppress(AttributeError):
                stream.close()  # type: ignore[attr-defined]  # only generators have `close`
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
    except Exception:  # noqa: BLE001 - the client gets the stand-in's own defect by name
        return json_reply({"error": traceback.format_exc(limit=-6)}, HTTPStatus.INTERNAL_SERVER_ERROR)
    return json_reply(body, HTTPStatus.OK)


def _control_document(
    engine: Engine[Any, Any], request: HttpRequest, path: str, query: dict[str, list[str]]
) -> Any:  # noqa: ANN401 - JSON
    if request.method == "GET" and path == "/calls":
        return control.calls(engine, int(query.get("since", ["0"])[0]))
    if request.method == "GET" and path == "/requests":
        return control.requests(engine, int(query.get("since", ["0"])[0]))
    if request.method == "GET" and path == "/bill":
        return control.bill(engine)
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


class _AddressServer(ThreadingHTTPServer):
    """Answers every GET on a port of 127.0.0.1 with the caller's address, as checkip.amazonaws.com does."""

    daemon_threads = True

    def __init__(self, ask: Callable[[], str]) -> None:
        super().__init__((HOST, 0), _AddressHandler)
        self.ask = ask
        threading.Thread(target=self.serve_forever, name="address", daemon=True).start()

    @property
    def url(self) -> str:
        """Return its URL."""
        return f"http://{HOST}:{self.server_port}/"

    def close(self) -> None:
        """End it and close its port."""
        self.shutdown()
        self.server_close()


class _AddressHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = f"{cast('_AddressServer', self.server).ask()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Print nothing: stdout has one line, and stderr none."""
