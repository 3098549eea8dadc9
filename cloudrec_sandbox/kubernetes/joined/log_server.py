"""A node's port for its API server: containers' logs over HTTPS, for clients of the cluster's authority."""

from __future__ import annotations

import ssl
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudrec_sandbox.core import certificates
from cloudrec_sandbox.kubernetes import logs
from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.storage.log_source import LogRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cloudrec_sandbox.kubernetes.kubelet.serving import LogServer
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

_LOGS = "containerLogs"  # /containerLogs/NAMESPACE/POD/CONTAINER, as in the kubelet's server.go
_PATIENCE_S = 30.0


class NodePort:
    """The ports of the nodes of one process: each has its own address."""

    def __init__(self, cluster: Cluster, source: LogServer, folder: Path, authority: str) -> None:
        self._cluster = cluster
        self._source = source
        _, self._tls = certificates.make(folder)
        # A kubelet answers only its API server, whose certificate is from the cluster's authority.
        self._tls.load_verify_locations(cadata=authority)
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._servers: dict[str, ThreadingHTTPServer] = {}

    def open(self, address: str) -> int:
        """Serve at a node's address; return the port."""
        server = _Server((address, 0), _Handler)
        server.port = self
        self._servers[address] = server
        threading.Thread(target=server.serve_forever, name=f"node-{address}", daemon=True).start()
        return server.server_port

    def shut(self, address: str) -> None:
        """Close a node's port."""
        server = self._servers.pop(address, None)
        if server is not None:
            server.shutdown()
            server.server_close()

    def close(self) -> None:
        """Close all."""
        for address in list(self._servers):
            self.shut(address)

    def secured(self, request: Any) -> ssl.SSLSocket:  # noqa: ANN401 - socketserver's own
        """Return a connection after its TLS handshake."""
        request.settimeout(_PATIENCE_S)
        secured = self._tls.wrap_socket(request, server_side=True)
        secured.settimeout(None)
        return secured

    def lines(self, place: tuple[str, str, str], query: Mapping[str, str]) -> Iterator[bytes]:
        """Return the lines of a container, by namespace, pod and name; ApiError if there are none yet."""
        namespace, name, container = place
        pod = self._cluster.store.get("pods", namespace, name)
        if pod is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f'pod "{name}" not found')
        request = LogRequest(
            pod=pod,
            container=container,
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
        )
        found = iter(self._source(request))
        return logs.wanted(found, query, pod=name, now=self._cluster.now())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    port: NodePort

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own
        with suppress(OSError), self.port.secured(request) as secured:
            super().finish_request(secured, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Send a container's lines."""
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/") if part]
        query = dict(parse_qsl(urlsplit(self.path).query))
        try:
            lines = self.server.port.lines(_container(parts), query)
        except ApiError as error:
            self._refuse(error)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):  # the reader has left
            for line in lines:
                if line:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, error: ApiError) -> None:
        text = error.message.encode()
        self.send_response(error.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


def _container(parts: list[str]) -> tuple[str, str, str]:
    if len(parts) != 4 or parts[0] != _LOGS:  # noqa: PLR2004 - the path's shape
        raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "404 page not found")
    return parts[1], parts[2], parts[3]
