"""A server on loopback that answers each request in the same way, whatever it is: a proxy in the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Each is answered with status 200.
FOREIGN = {
    "html": b"<html><body>Please log in to the network</body></html>",
    "empty": b"",
    "bytes": b"\xff\xfe\x00\x81" * 8,
    "half": b'{"items": [{"name": "x"',
}


@contextmanager
def foreign(body: bytes, kind: str = "text/html") -> Iterator[str]:
    """Yield the URL of a server whose every answer is this body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Print nothing."""

    for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
