"""Receivers of notifications on loopback: real HTTP and mail servers that misbehave on request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class Hooks:
    """An HTTP server: it answers with the codes given, the last one without end, and keeps what it got."""

    def __init__(self, *codes: int, hang_s: float = 0.0, drip: bool = False) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.codes = list(codes) or [200]
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hooks.got.append(json.loads(body))
                hooks.headers.append(dict(self.headers))
                if drip:  # a byte now and then, so that no single read takes long
                    for _ in range(200):
                        try:
                            self.wfile.write(b"H")
                        except OSError:
                            return
                        time.sleep(0.1)
                time.sleep(hang_s)
                code = hooks.codes.pop(0) if len(hooks.codes) > 1 else hooks.codes[0]
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", f"{hooks.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - the name that the base class calls

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/services/T0/B0/hidden"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def hooks(*codes: int, hang_s: float = 0.0, drip: bool = False) -> Iterator[Hooks]:
    server = Hooks(*codes, hang_s=hang_s, drip=drip)
    try:
        yield server
    finally:
        server.close()


class Mailbox:
    """What a mail server accepts; it refuses with the replies given first."""

    def __init__(self, *replies: str) -> None:
        self.got: list[str] = []
        self.to: list[str] = []
        self.replies = list(replies)

    async def handle_DATA(  # noqa: N802 - the name that aiosmtpd calls
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        if self.replies:
            return self.replies.pop(0)
        content = envelope.content
        self.got.append(content.decode() if isinstance(content, bytes) else str(content))
        self.to += envelope.rcpt_tos
        return "250 OK"


def _knows(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"bot", b"right")
    return AuthResult(success=right, handled=False)


@contextmanager
def mail_server(box: Mailbox, *, tls: Any = None, login: bool = False) -> Iterator[int]:
    """Yield the port of a mail server with STARTTLS if it has a certificate."""
    controller = Controller(
        box,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=tls,
        require_starttls=tls is not None,
        authenticator=_knows if login else None,
        auth_required=login,
        auth_require_tls=tls is not None,
    )
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@contextmanager
def deaf_server() -> Iterator[int]:
    """Yield the port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
