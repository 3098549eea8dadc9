"""The server's side of a WebSocket (RFC 6455): the handshake, frames from a client, frames to it."""

from __future__ import annotations

import base64
import hashlib
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_FIN, _MASKED, _LENGTH = 0x80, 0x80, 0x7F
_SHORT, _LONG = 126, 127  # a length in two bytes, in eight bytes
_LONGEST = 32 << 20  # bytes of a message
_CHUNK = 1 << 16


class ClosedError(Exception):
    """The client has closed the connection, or broke the protocol."""


def is_asked(headers: Mapping[str, str]) -> bool:
    """Return whether a request's headers (in lower case) ask for a WebSocket."""
    tokens = [part.strip().lower() for part in headers.get("connection", "").split(",")]
    return "upgrade" in tokens and headers.get("upgrade", "").lower() == "websocket"


def handshake(headers: Mapping[str, str], protocol: str) -> Sequence[tuple[str, str]]:
    """Return the headers of the answer 101 (RFC 6455, section 4.2.2)."""
    key = headers.get("sec-websocket-key", "") + _GUID
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324 - the RFC's own
    chosen = [("Sec-WebSocket-Protocol", protocol)] if protocol else []
    return [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept), *chosen]


class ServerSocket:
    """A WebSocket after its handshake; one thread uses it."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - a socket, or one with TLS
        self._connection = connection
        self._data = bytearray()
        self._message = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        number: int = self._connection.fileno()
        return number

    @property
    def has_pending(self) -> bool:
        """Return whether data was read from the network that `poll` does not see."""
        return isinstance(self._connection, ssl.SSLSocket) and self._connection.pending() > 0

    def messages(self) -> Iterator[bytes]:
        """Read once, and yield the messages that are complete; ClosedError at the end."""
        data = self._connection.recv(_CHUNK)
        if not data:
            raise ClosedError
        self._data += data
        while (frame := self._frame()) is not None:
            kind, is_last, payload = frame
            if kind == _CLOSE:
                self._send(_CLOSE, payload)
                raise ClosedError
            if kind == _PING:
                self._send(_PONG, payload)
            elif kind != _PONG:
                self._message += payload
                if len(self._message) > _LONGEST:
                    raise ClosedError
                if is_last:
                    yield bytes(self._message)
                    self._message.clear()

    def send(self, payload: bytes) -> None:
        """Send one binary message."""
        self._send(_BINARY, payload)

    def close(self, code: int = 1000) -> None:
        """Send the end of the connection."""
        self._send(_CLOSE, code.to_bytes(2, "big"))

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < _SHORT:
            head = bytes([_FIN | kind, size])
        elif size < 1 << 16:
            head = bytes([_FIN | kind, _SHORT]) + size.to_bytes(2, "big")
        else:
            head = bytes([_FIN | kind, _LONG]) + size.to_bytes(8, "big")
        self._connection.sendall(head + payload)

    def _frame(self) -> tuple[int, bool, bytes] | None:
        """Take the next frame from what was read; None if it is not complete."""
        data = self._data
        if len(data) < 2:  # noqa: PLR2004 - the shortest head
            return None
        if not data[1] & _MASKED:
            raise ClosedError  # RFC 6455, section 5.1: a client must mask its frames
        size, place = data[1] & _LENGTH, 2
        if size in (_SHORT, _LONG):
            width = 2 if size == _SHORT else 8
            if len(data) < place + width:
                return None
            size, place = int.from_bytes(data[place : place + width], "big"), place + width
        if size > _LONGEST:
            raise ClosedError
        if len(data) < place + 4 + size:
            return None
        mask, place = bytes(data[place : place + 4]), place + 4
        payload = bytes(byte ^ mask[number % 4] for number, byte in enumerate(data[place : place + size]))
        kind, is_last = data[0] & 0x0F, bool(data[0] & _FIN)
        del data[: place + size]
        return kind, is_last, payload
