"""Commands in running containers, and connections to their ports, for the API server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudrec
from cloudrec_sandbox.kubernetes.kubelet.container import kernel
from cloudrec_sandbox.kubernetes.kubelet.processes.process import Process
from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.storage.stream_source import ExecRequest

_ENTER = "cloudrec_sandbox.kubernetes.kubelet.container.enter"
_SOURCES = Path(cloudrec.__file__).resolve().parent.parent
_PATIENCE_S = 10.0


class StreamServer:
    """The API server's way into containers."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def execute(self, request: ExecRequest, /) -> Callable[[], ContainerCommand]:
        """Return what starts the command; refused as by a kubelet if the container does not run."""
        process = self._process(request.pod, request.container)
        return lambda: ContainerCommand(process, request)

    def dial(self, pod: Mapping[str, Any], /) -> Callable[[int], socket.socket]:
        """Return what connects to a port of a pod: a kubelet connects to localhost in its network."""
        uid = str(pod["metadata"]["uid"])
        worker = self._kubelet.worker(uid)
        if worker is None or worker.is_over():
            raise _unavailable(f"unable to upgrade connection: pod not found ({pod['metadata']['name']!r})")
        namespace = self._kubelet.network.namespace(uid)
        addresses = ["127.0.0.1"] if namespace is not None else ["127.0.0.1", worker.ip]
        return lambda port: _dialled(namespace, addresses, port)

    def _process(self, pod: Mapping[str, Any], container: str) -> Process:
        worker = self._kubelet.worker(pod["metadata"]["uid"])
        instances = worker.instances if worker is not None else []
        instance = next((each for each in instances if each.name == container), None)
        running = instance.running if instance is not None else None
        if instance is None or running is None or not instance.pid:
            raise _unavailable(f'unable to upgrade connection: container not found ("{container}")')
        if not isinstance(running, Process):
            raise _unavailable(
                f'unable to upgrade connection: container "{container}" is only simulated here'
            )
        return running


def _unavailable(text: str) -> errors.ApiError:
    """Return the error of a kubelet that refuses, as kube-apiserver passes it on."""
    return errors.ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", text)


class ContainerCommand:
    """A command in a container, in a process that has entered its namespaces."""

    def __init__(self, process: Process, request: ExecRequest) -> None:
        problem, report = os.pipe()
        self._problem = problem
        words = [str(process.pid), str(process.spec_path), json.dumps(list(request.command))]
        streams = self._terminal() if request.tty else self._pipes(request)
        self._child = subprocess.Popen(
            [sys.executable, "-PsSm", _ENTER, *words, str(report), *(["terminal"] if request.tty else [])],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd="/",
            env={"PYTHONPATH": str(_SOURCES)},
            pass_fds=[report],
            start_new_session=True,
        )
        os.close(report)
        for stream in set(streams):
            os.close(stream)

    def _terminal(self) -> tuple[int, int, int]:
        master, slave = pty.openpty()
        self.stdin = self.stdout = master
        self.stderr = -1
        return slave, slave, slave

    def _pipes(self, request: ExecRequest) -> tuple[int, int, int]:
        given, self.stdin = os.pipe()
        self.stdout, out = os.pipe()
        self.stderr, err = os.pipe()
        if not request.stdin:
            self.end_input()
        return given, out, err

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal; its programs get SIGWINCH."""
        if self.stdin == self.stdout:
            fcntl.ioctl(self.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end_input(self) -> None:
        """Close its stdin; a terminal has no end."""
        if self.stdin >= 0 and self.stdin != self.stdout:
            os.close(self.stdin)
            self.stdin = -1

    def wait(self) -> tuple[int, str]:
        """Wait for its end."""
        code = self._child.wait()
        return code, os.read(self._problem, 4096).decode(errors="replace")

    def kill(self) -> None:
        """End it, and close its streams."""
        self._child.kill()
        self._child.wait()
        for descriptor in {self.stdin, self.stdout, self.stderr, self._problem} - {-1}:
            with suppress(OSError):
                os.close(descriptor)
        self.stdin = self.stdout = self.stderr = self._problem = -1


def _dialled(namespace: int | None, addresses: list[str], port: int) -> socket.socket:
    """Connect in a separate thread, whose network only it uses."""
    found: list[socket.socket | OSError] = []

    def connect() -> None:
        try:
            if namespace is not None:
                kernel.enter(namespace, kernel.NEW_NET)
            for address in addresses:
                try:
                    found.append(socket.create_connection((address, port), _PATIENCE_S))
                except ConnectionRefusedError as error:
                    refused = error
                else:
                    return
            found.append(refused)
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=connect, name="dial")
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    found[0].settimeout(None)
    return found[0]
