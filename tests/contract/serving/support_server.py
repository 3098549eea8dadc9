"""`cloudrec serve` as a process, and a client that keeps its connection."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_AT = re.compile(r"at http://127\.0\.0\.1:(\d+)")
PATIENCE_S = 120.0


class Answer(NamedTuple):
    status: int
    content: Any
    headers: dict[str, str]


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._started = threading.Event()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, kept), daemon=True)
            for stream, kept in ((process.stdout, self.lines), (process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()
        if not self._started.wait(PATIENCE_S) or not self.port:
            self.end()
            raise AssertionError(f"the server did not start: {''.join(self.errors)}")

    def _read(self, stream: Any, kept: list[str]) -> None:
        for line in stream:
            kept.append(line)
            if _AT.search(line):
                self._started.set()
        self._started.set()

    @property
    def port(self) -> int:
        found = _AT.search("".join(self.lines))
        return int(found[1]) if found else 0

    @property
    def log(self) -> str:
        return "".join(self.errors)

    def end(self, *, by: int = signal.SIGTERM) -> int:
        """Ask it to end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for reader in self._readers:
                reader.join(5)
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()

    @contextmanager
    def client(self) -> Iterator[Client]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            yield Client(connection)
        finally:
            connection.close()


class Client:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        data = response.read()
        kind = response.headers.get("content-type", "")
        content = json.loads(data) if kind.startswith("application/json") else data.decode()
        return Answer(response.status, content, {key.lower(): value for key, value in response.getheaders()})

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, content: object) -> Answer:
        return self.ask("POST", path, json.dumps(content).encode())

    def scores(self, rows: Sequence[dict[str, Any]]) -> Any:
        answer = self.post("/v1/score", {"rows": rows})
        assert answer.status == 200, answer
        return answer.content["scores"]


@contextmanager
def serving(package: Path, *options: str) -> Iterator[Server]:
    """Serve a package on a free port; the process is ended and was sound."""
    command = [sys.executable, "-P", "-m", "cloudrec", "serve", str(package), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server = Server(process)
    try:
        yield server
    finally:
        code = server.end()
    assert code == 0, server.log
    assert "Traceback" not in server.log
