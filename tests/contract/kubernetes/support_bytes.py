"""A proxy between a client and an API server that counts the bytes which the client receives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

_HEAD = 65536


class CountingProxy:
    """An HTTP proxy on 127.0.0.1 for CONNECT; it does not end TLS, so the bytes are those of the wire."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = 0  # bytes that clients have received
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with suppress(OSError):
            host, port = client.recv(_HEAD).split()[1].decode().rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            self._open.append(server)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            while data := server.recv(_HEAD):
                self.received += len(data)
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_HEAD):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def counted() -> Iterator[CountingProxy]:
    """A proxy that this process's clients use until the end of the block."""
    proxy = CountingProxy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", proxy.url)
        for name in ("NO_PROXY", "no_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        try:
            yield proxy
        finally:
            proxy.close()
