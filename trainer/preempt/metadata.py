"""Requests to a cloud's metadata service, which may not answer, be slow, or be another service."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANSWER_LIMIT = 64 * 1024  # bytes; answers of these services are far smaller
_SHOWN = 60  # characters of an invalid answer in a message


class MetadataError(Exception):
    """The service did not answer, or its answer is not valid."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """The response of the service."""

    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", errors="replace").strip()

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; MetadataError if it is not one."""
        try:
            values = safe_object(self.body)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise MetadataError(f"its answer is not a JSON object: {self.text[:_SHOWN]!r}")
        return values


class MetadataService:
    """A client for one base URL; each request has a separate connection and never uses a proxy.

    The addresses are link-local: a proxy would reach the metadata service of another machine, or none.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme != "http" or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise ConfigError(
                f"the metadata service's URL is {url!r}; it must be like http://169.254.169.254 or http://host:port"
            )
        self.url = url
        self._address = (parts.hostname, port or 80)
        self._path = parts.path.rstrip("/")
        self._lock = threading.Lock()
        self._closed = False
        self._socket: socket.socket | None = None

    def get(
        self, path: str, headers: Mapping[str, str], *, timeout_s: float, method: str = "GET"
    ) -> MetadataResponse:
        """Request a path below the URL; MetadataError unless the whole response arrives in time."""
        overdue = threading.Event()

        def give_up() -> None:
            overdue.set()
            self._cut()

        # A timer, because a socket's time-out starts again with every byte that arrives.
        timer = threading.Timer(timeout_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            with self._connection(timeout_s) as connection:
                connection.request(method, self._path + path, headers=dict(headers))
                response = connection.getresponse()
                body = response.read(ANSWER_LIMIT)
                if overdue.is_set():  # cut off in the middle
                    raise TimeoutError
                return MetadataResponse(
                    response.status, {name.lower(): value for name, value in response.headers.items()}, body
                )
        except (OSError, HTTPException, ValueError) as error:
            late = overdue.is_set() or isinstance(error, TimeoutError)
            why = f"no answer within {timeout_s:g} s" if late else str(error) or type(error).__name__
            raise MetadataError(why) from error
        finally:
            timer.cancel()

    def close(self) -> None:
        """Abort the request in progress, if there is one, and refuse further ones."""
        with self._lock:
            self._closed = True
        self._cut()

    @contextmanager
    def _connection(self, timeout_s: float) -> Iterator[HTTPConnection]:
        connection = HTTPConnection(*self._address, timeout=timeout_s)
        try:
            connection.connect()
            with self._lock:
                if self._closed:
                    raise MetadataError("closed")
                self._socket = connection.sock
            yield connection
        finally:
            with self._lock:
                self._socket = None
            connection.close()

    def _cut(self) -> None:
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
