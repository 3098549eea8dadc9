"""A stand-in for the agent on a node that gives pods their cloud credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class _Identity(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        given = {
            "AccessKeyId": "k",
            "SecretAccessKey": "s",
            "Token": "t",
            "Expiration": "2099-01-01T00:00:00Z",
        }
        body = json.dumps(given).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Say nothing."""


@contextmanager
def pod_identity() -> Iterator[str]:
    """Serve it; its URL, as AWS_CONTAINER_CREDENTIALS_FULL_URI."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Identity)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/credentials"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
