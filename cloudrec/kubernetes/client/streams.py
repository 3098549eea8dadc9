"""Commands in containers and ports of pods, over WebSockets to the API server.

A message begins with the number of its channel: 0 to 4 are stdin, stdout, stderr, the final status, and the
terminal's size; 255 closes another channel, since version 5 of the protocol (KEP-4006). A forwarded port has
one channel for data and one for errors, each of which begins with the port's number.
"""

from __future__ import annotations

import json
import os
import select
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.websockets import V4, V5
from cloudrec_contract.safe_json import UnsafeJsonError, safe_object

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.websockets import ChannelSocket

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK = 1 << 15
_PORT_BYTES = 2
_LOST = 255  # the exit code of ssh for a connection that failed
_NOT_STARTED = 126  # the shell's exit code for a command that cannot be run


@dataclass(frozen=True, kw_only=True)
class ContainerPlace:
    """A container.

    Attributes:
        namespace: the pod's namespace.
        pod: the pod's name.
        container: the container's name.
    """

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, kw_only=True)
class LocalEnd:
    """This end of a command's streams.

    Attributes:
        stdin: the descriptor to read; None for no input.
        stdout: the descriptor for its output.
        stderr: the descriptor for its errors.
        size: returns the columns and rows of the terminal; None without a terminal.
        resized: a descriptor that can be read when the size has changed; None without a terminal.
    """

    stdin: int | None
    stdout: int
    stderr: int
    size: Callable[[], tuple[int, int]] | None = None
    resized: int | None = None


def execute(kube: Kube, place: ContainerPlace, command: Sequence[str], end: LocalEnd) -> int:
    """Run a command in a container, and return its exit code.

    Args:
        kube: the cluster.
        place: the container.
        command: the command and its arguments.
        end: this end of its streams.

    Raises:
        CloudrecError: the container does not run or has no such program, or the connection was lost.
        DeniedError: the credentials may not do that.
    """
    query = [("command", word) for word in command]
    query += [("container", place.container), ("stdout", "true")]
    query += [("stdin", "true")] if end.stdin is not None else []
    query += [("tty", "true")] if end.size is not None else [("stderr", "true")]
    what = f"run a command in pod {place.pod} in namespace {place.namespace}"
    client = kube.websocket(f"{_pod(place)}/exec?{urlencode(query)}", what=what, protocols=(V5, V4))
    try:
        status = _followed(client, end)
    finally:
        client.close()
    return _code(status, place)


def _followed(client: ChannelSocket, end: LocalEnd) -> bytes:
    """Pass data on in both directions until the connection ends; return the final status."""
    status = b""
    poll = select.poll()
    poll.register(client.fileno(), select.POLLIN)
    for descriptor in (end.stdin, end.resized):
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    _send_size(client, end)
    with suppress(OSError):  # the connection is lost: without a status, `_code` reports it
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(0 if client.has_pending else None)]
            if client.has_pending or client.fileno() in ready:
                message = client.receive()
                if message is None:
                    return status
                channel, data = message
                if channel == _ERROR:
                    status += data
                elif channel in (_STDOUT, _STDERR):
                    _write(end.stdout if channel == _STDOUT else end.stderr, data)
            if end.stdin is not None and end.stdin in ready and not _send_input(client, end.stdin):
                poll.unregister(end.stdin)
            if end.resized is not None and end.resized in ready:
                os.read(end.resized, _CHUNK)
                _send_size(client, end)
    return status


def _send_input(client: ChannelSocket, stdin: int) -> bool:
    """Send what there is on stdin; return False at its end."""
    data = os.read(stdin, _CHUNK)
    if data:
        client.send(_STDIN, data)
    elif client.is_v5:
        client.send(_CLOSE, bytes([_STDIN]))
    return bool(data)


def _send_size(client: ChannelSocket, end: LocalEnd) -> None:
    if end.size is not None:
        columns, rows = end.size()
        client.send(_RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _code(status: bytes, place: ContainerPlace) -> int:
    """Return the exit code in a final status."""
    try:
        found = safe_object(status)
    except UnsafeJsonError:
        raise ConnectionLostError(place.pod) from None
    if found.get("status") == "Success":
        return 0
    details = found.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message", ""))
            return int(text) if text.isdecimal() else 1
    raise NotStartedError(place, str(found.get("message", "")))


class ConnectionLostError(CloudrecError):
    """The connection to a container ended before the command did."""

    exit_code = _LOST

    def __init__(self, pod: str) -> None:
        super().__init__(
            f"the connection to pod {pod} was lost before the command ended",
            remedy="run it again; `cloudrec status` shows whether the pod still runs",
        )


class NotStartedError(CloudrecError):
    """A container has no such program, or may not run it."""

    exit_code = _NOT_STARTED

    def __init__(self, place: ContainerPlace, reason: str) -> None:
        super().__init__(
            f"the command was not started in container {place.container} of pod {place.pod}: {reason}",
            remedy="name a program that the image has, such as sh",
        )


def connect_port(kube: Kube, place: ContainerPlace, port: int) -> ChannelSocket:
    """Connect to a port of a pod; errors as in `execute`."""
    what = f"forward port {port} of pod {place.pod} in namespace {place.namespace}"
    path = f"{_pod(place)}/portforward?{urlencode({'ports': port})}"
    return kube.websocket(path, what=what, protocols=(V4,))


def carry(client: ChannelSocket, local: socket.socket) -> str:
    """Pass data on between a connection and a port of a pod until either ends; return the pod's error."""
    problem, heads = b"", {0: _PORT_BYTES, 1: _PORT_BYTES}
    poll = select.poll()
    poll.register(client.fileno(), select.POLLIN)
    poll.register(local, select.POLLIN)
    with suppress(OSError):  # one of the ends has closed the connection
        while not problem:
            ready = [descriptor for descriptor, _ in poll.poll(0 if client.has_pending else None)]
            if client.has_pending or client.fileno() in ready:
                message = client.receive()
                if message is None:
                    break
                channel, data = message
                skipped = min(heads.get(channel, 0), len(data))
                heads[channel] = heads.get(channel, 0) - skipped
                if channel == 0:
                    local.sendall(data[skipped:])
                elif channel == 1:
                    problem += data[skipped:]
            if local.fileno() in ready:
                data = local.recv(_CHUNK)
                if not data:
                    break
                client.send(0, data)
    return problem.decode(errors="replace")


def _pod(place: ContainerPlace) -> str:
    return f"/api/v1/namespaces/{quote(place.namespace, safe='')}/pods/{quote(place.pod, safe='')}"
