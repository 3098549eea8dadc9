"""An HTTP endpoint with one page, /metrics, in a thread of the process that knows the values."""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.observe.prometheus.text import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPBACK = "127.0.0.1"
EVERYWHERE = "::"  # of a pod: all its addresses, by IPv4 and IPv6
PORT = 9409  # unless the settings name another one
_PATHS = ("/metrics", "/metrics/")
_TIMEOUT_S = 10.0


class MetricsServer:
    """Serves /metrics until the process ends.

    Args:
        port: the port; 0 for a free one.
        address: the address to listen at: LOOPBACK or EVERYWHERE.
        page: returns the metrics now.
    """

    def __init__(self, port: int, *, address: str, page: Callable[[], str]) -> None:
        class Handler(_MetricsHandler):
            render = staticmethod(page)

        try:
            self._server = _listening(port, address, Handler)
        except (OSError, OverflowError) as error:
            raise PreflightError(
                f"metrics cannot be served at port {port}: {error}",
                remedy="choose another port, or leave the setting out",
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    server_version, sys_version = "cloudrec", ""

    render: Callable[[], str]  # returns the page

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(HTTPStatus.NOT_FOUND, "the only page is /metrics")
            return
        try:
            body = self.render().encode()
        except Exception as error:  # noqa: BLE001 - a scrape must not end what is scraped
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Print nothing: a scrape every few seconds would fill the pod's log."""


class _MetricsListener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _DualStack(_MetricsListener):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Bind, and accept IPv4 too."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _listening(port: int, address: str, handler: type[BaseHTTPRequestHandler]) -> _MetricsListener:
    if address != EVERYWHERE:
        return _MetricsListener((address, port), handler)
    try:
        return _DualStack((address, port), handler)
    except OSError:  # a node without IPv6
        return _MetricsListener(("0.0.0.0", port), handler)  # noqa: S104 - in a pod, behind its NetworkPolicy
