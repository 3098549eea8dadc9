"""The HTTP server: reads a request and answers it, or does what the fault in force requires."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE, Admission
from cloudrec_sandbox.metadata.services import Question, Reply, answer
from cloudrec_sandbox.metadata.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.admission import Refusal

_HOST = "127.0.0.1"
_CONTROL = "/_control"
_TRICKLE_S = 0.05  # between two bytes of an answer that never ends


class MetadataServer(ThreadingHTTPServer):
    """Answers for all clouds; `state` has what to answer."""

    daemon_threads = True  # a request without an answer must not keep the process alive

    def __init__(self, port: int) -> None:
        super().__init__((_HOST, port), _Handler)
        self.state = State()
        self.admission = Admission(scheme="http", port=self.server_port)

    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""
        address = f"{_HOST}:{self.server_port}"
        return {
            "endpoints": {"metadata": f"http://{address}"},
            "env": {
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{address}",
                "GCE_METADATA_HOST": address,
                "GCE_METADATA_IP": address,
                TOKEN_VARIABLE: self.admission.token,
            },
        }


def serve(port: int) -> MetadataServer:
    """Return a server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return MetadataServer(port)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MetadataServer

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Print nothing: stdout has one line, and stderr none."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        with suppress(ConnectionError):  # a client that has given up is no defect
            if refusal := self._refusal(parts.path, headers):
                self._send(Reply(status=refusal.status, body=json.dumps({"error": refusal.message})))
                return
            if parts.path == _CONTROL:
                self._send(self._control(body))
                return
            state = self.server.state
            with state.changed:
                state.asked[parts.path] += 1
                fault, delay_s = dict(state.fault), state.delay_s
            # Outside the lock: other requests must not wait, too.
            time.sleep(delay_s)
            question = Question(
                method=self.command,
                path=parts.path,
                query=dict(parse_qsl(parts.query)),
                headers=headers,
            )
            self._fail(fault) if fault else self._send(answer(question, state))

    def _refusal(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        admission = self.server.admission
        if path == _CONTROL:
            return admission.control_refusal(self.command, headers)
        return admission.refusal(headers)

    def _control(self, body: bytes) -> Reply:
        state = self.server.state
        if self.command == "POST":
            try:
                state.control(json.loads(body))
            except (ValueError, TypeError) as error:
                return Reply(status=HTTPStatus.BAD_REQUEST, body=json.dumps({"error": str(error)}))
        with state.changed:
            return Reply(body=json.dumps(state.document()))

    def _fail(self, fault: dict[str, Any]) -> None:
        kind = fault.get("kind")
        if kind == "status":
            self._send(Reply(status=HTTPStatus(fault.get("status", 500))))
        elif kind == "garbage":
            self._send(Reply(body="<html>\x00 welcome to the hotel's network </html>"))
        else:
            self._stall(trickle=kind == "trickle")

    def _stall(self, *, trickle: bool) -> None:
        """Send nothing while the fault is in force, or a byte now and then."""
        if trickle:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
        while self.server.state.fault:
            if trickle:
                self.wfile.write(b" ")
            time.sleep(_TRICKLE_S)
        self.close_connection = True

    def _send(self, reply: Reply) -> None:
        data = reply.body.encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
