"""A stand-in for Google Cloud in a process of its own, and what a test does with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

# How Google calls what changes nothing: "service action".
READS = re.compile(
    r"oauth2 |\S+ (Get|List|Query|(.*\.)?(get|list|aggregatedList|getIamPolicy|batchGet|wait)$)"
)


class Cloud:
    """One running stand-in, and its control."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self._address = urlsplit(env["GOOGLE_CLOUD_ENDPOINT_URL"]).netloc

    def ask(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection(self._address, timeout=30)
        try:
            connection.request(method, f"/_control{path}", json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(document["error"])
        return document

    def control(self, **wishes: Any) -> dict[str, Any]:
        changed: dict[str, Any] = self.ask("POST", "", wishes)
        return changed

    def advance(self, seconds: float) -> None:
        self.control(advance_s=seconds)

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.ask("GET", f"/calls?since={since}")
        return lines

    def changing(self, since: int = 0) -> Sequence[dict[str, Any]]:
        """The calls that change something."""
        calls = self.calls(since)
        return [call for call in calls if not READS.match(f"{call['service']} {call['action']}")]

    def state(self) -> list[str]:
        existing: list[str] = self.ask("GET", "/state")["existing"]
        return existing

    def pending(self) -> list[str]:
        pending: list[str] = self.ask("GET", "/state")["pending"]
        return pending


@contextmanager
def stand_in() -> Iterator[Cloud]:
    words = [sys.executable, "-m", "cloudrec.sandbox", "gcp", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Cloud(json.loads(process.stdout.readline())["env"])
        finally:
            process.terminate()
            process.wait(10)
