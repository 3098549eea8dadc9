"""`pods/exec` and `pods/portforward` over WebSockets, as kube-apiserver and the kubelet answer.

As checked on kube-apiserver 1.36, a WebSocket needs the verb `get`, and for its effect `create`; without the
second it is refused without a reason (AuthorizePodWebsocketUpgradeCreatePermission, since 1.35). The channels
are those of the kubelet (websocket.go in cri/streaming/remotecommand and cri/streaming/portforward), and of
KEP-4006 for version 5. SPDY is not offered.
"""

from __future__ import annotations

import json
import os
import select
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.kubernetes.api import rbac, reads
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage.stream_source import ExecRequest
from cloudrec_sandbox.kubernetes.streams import websocket
from cloudrec_sandbox.kubernetes.streams.websocket import ClosedError, ServerSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec_sandbox.kubernetes.api.call import Call
    from cloudrec_sandbox.kubernetes.storage.stream_source import Running, StreamSource

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK = 1 << 15
_HIGHEST_PORT = 65535


def execute(call: Call) -> Reply:
    """Run a command in a container, with its streams in channels."""
    _check_effect(call)
    pod = reads.existing(call).obj
    container = _container(call, pod)
    source = _source(call, pod)
    query = parse_qsl(call.target.query, keep_blank_values=True)
    request = ExecRequest(
        pod=pod,
        container=container,
        command=[value for name, value in query if name == "command"],
        stdin=call.target.flag("stdin"),
        stdout=call.target.flag("stdout"),
        stderr=call.target.flag("stderr"),
        tty=call.target.flag("tty"),
    )
    if not (request.stdin or request.stdout or request.stderr):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    start = source.execute(request)
    protocol = _chosen(call, (V5, V4))
    return _upgraded(call, protocol, lambda socket: _follow(socket, start(), is_v5=protocol == V5))


def forward(call: Call) -> Reply:
    """Connect to ports of a pod: each has a channel for data and one for errors."""
    _check_effect(call)
    ports = _ports(call)
    pod = reads.existing(call).obj
    source = _source(call, pod)
    if not ports:
        raise errors.bad_request('query parameter "ports" is required')
    protocol = _chosen(call, (V4,))
    dial = source.dial(pod)
    return _upgraded(call, protocol, lambda socket: _relay(socket, ports, dial))


def _check_effect(call: Call) -> None:
    if call.target.verb != "get":
        return
    try:
        rbac.check(call, "create")
    except errors.ApiError as error:
        raise errors.forbidden("pods", "", call.target.name, "") from error


def _container(call: Call, pod: Mapping[str, Any]) -> str:
    """Return the container's name; the texts are those of kube-apiserver 1.36."""
    names = [each["name"] for each in pod["spec"]["containers"]]
    every = [*names, *(each["name"] for each in pod["spec"].get("initContainers") or ())]
    asked = call.query.get("container", "")
    name = call.target.name
    if not asked and len(names) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    if asked and asked not in every:
        raise errors.bad_request(f"container {asked} is not valid for pod {name}")
    return asked or str(names[0])


def _source(call: Call, pod: Mapping[str, Any]) -> StreamSource:
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {call.target.name} does not have a host assigned")
    if call.store.streams is None:
        raise errors.not_found("nodes", "", pod["spec"]["nodeName"])
    if not websocket.is_asked(call.request.lower):
        raise errors.bad_request("Upgrade request required")
    return call.store.streams


def _ports(call: Call) -> list[int]:
    texts = [value for name, value in parse_qsl(call.target.query) if name == "ports"]
    found = []
    for text in (part for each in texts for part in each.split(",")):
        if not text.isdecimal():
            raise errors.bad_request(
                f'cannot convert to []int32: strconv.ParseUint: parsing "{text}": invalid syntax'
            )
        if not 1 <= int(text) <= _HIGHEST_PORT:
            raise errors.bad_request(f'invalid port "{text}"')
        found.append(int(text))
    return found


def _chosen(call: Call, known: Sequence[str]) -> str:
    """Return the first protocol of the client's that is known; 403 without one, as golang.org/x/net."""
    asked = [part.strip() for part in call.request.lower.get("sec-websocket-protocol", "").split(",")]
    found = next((each for each in asked if each in known), None)
    if found is None:
        raise errors.ApiError(HTTPStatus.FORBIDDEN, "", f"no protocol of {asked} is known")
    return found


def _upgraded(call: Call, protocol: str, work: Callable[[ServerSocket], None]) -> Reply:
    def serve(connection: Any) -> None:  # noqa: ANN401 - a socket
        with suppress(ClosedError, OSError):
            work(ServerSocket(connection))

    headers = websocket.handshake(call.request.lower, protocol)
    return Reply(status=HTTPStatus.SWITCHING_PROTOCOLS, headers=headers, upgrade=serve)


def _follow(client: ServerSocket, running: Running, *, is_v5: bool) -> None:
    """Pass data on in both directions until the command has ended."""
    outputs = {running.stdout: _STDOUT, running.stderr: _STDERR}
    outputs.pop(-1, None)
    poll = select.poll()
    for descriptor in (client.fileno(), *outputs):
        poll.register(descriptor, select.POLLIN)
    try:
        while outputs:
            ready = [descriptor for descriptor, _ in poll.poll(0 if client.has_pending else None)]
            if client.has_pending or client.fileno() in ready:
                for message in client.messages():
                    _take(message, running, is_v5=is_v5)
            for descriptor in ready:
                if descriptor in outputs and not _pass(client, descriptor, outputs[descriptor]):
                    poll.unregister(descriptor)
                    del outputs[descriptor]
        code, problem = running.wait()
    finally:
        running.kill()
    client.send(bytes([_ERROR]) + json.dumps(_status(code, problem)).encode())
    client.close()


def _take(message: bytes, running: Running, *, is_v5: bool) -> None:
    channel, data = message[:1], message[1:]
    if channel == bytes([_STDIN]) and running.stdin >= 0 and data:
        with suppress(OSError):  # it has closed its stdin
            while data:
                data = data[os.write(running.stdin, data) :]
    elif channel == bytes([_RESIZE]):
        size = json.loads(data)
        running.resize(int(size["Width"]), int(size["Height"]))
    elif is_v5 and message == bytes([_CLOSE, _STDIN]):
        running.end_input()


def _pass(client: ServerSocket, descriptor: int, channel: int) -> bool:
    """Send what a stream has; return False at its end."""
    try:
        data = os.read(descriptor, _CHUNK)
    except OSError:  # of a terminal whose last process has ended
        data = b""
    if data:
        client.send(bytes([channel]) + data)
    return bool(data)


def _status(code: int, problem: str) -> dict[str, Any]:
    """Return the last message: `pkg/kubelet/cri/streaming/remotecommand/exec.go`, and the runtime's texts."""
    if problem:
        text = f"error executing command in container: failed to exec in container: {problem}"
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"Internal error occurred: {text}",
            "reason": "InternalError",
            "details": {"causes": [{"message": text}]},
            "code": 500,
        }
    if not code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: error executing command, exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _relay(client: ServerSocket, ports: Sequence[int], dial: Callable[[int], socket.socket]) -> None:
    """Pass data on between the channels and the ports."""
    for number, port in enumerate(ports):
        for channel in (2 * number, 2 * number + 1):
            client.send(bytes([channel]) + port.to_bytes(2, "little"))
    by_channel: dict[int, socket.socket] = {}
    try:
        for number, port in enumerate(ports):
            try:
                by_channel[2 * number] = dial(port)
            except OSError as error:
                text = f"error forwarding port {port} to pod: failed to connect to localhost:{port}: {error}"
                client.send(bytes([2 * number + 1]) + text.encode())
        _carry(client, by_channel)
    finally:
        for made in by_channel.values():
            made.close()
    client.close()


def _carry(client: ServerSocket, by_channel: Mapping[int, socket.socket]) -> None:
    """Pass data on until all connections to the pod have ended."""
    live = {made.fileno(): channel for channel, made in by_channel.items()}
    poll = select.poll()
    for descriptor in (client.fileno(), *live):
        poll.register(descriptor, select.POLLIN)
    while live:
        ready = [descriptor for descriptor, _ in poll.poll(0 if client.has_pending else None)]
        if client.has_pending or client.fileno() in ready:
            for message in client.messages():
                target = by_channel.get(message[0]) if message else None
                if target is not None and message[1:]:
                    target.sendall(message[1:])
        for descriptor in ready:
            if descriptor in live and not _pass(client, descriptor, live[descriptor]):
                poll.unregister(descriptor)
                del live[descriptor]
