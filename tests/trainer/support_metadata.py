"""The metadata stand-in as a process of its own, as `python -m cloudrec.sandbox metadata` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET = {"aws": None, "azure": None, "gcp": None, "fault": None, "delay_s": 0}


class Metadata:
    """A running stand-in."""

    def __init__(self, announcement: dict[str, Any]) -> None:
        self.url: str = announcement["endpoints"]["metadata"]
        self.env: dict[str, str] = announcement["env"]

    def control(self, **wishes: Any) -> None:
        """Change what it says."""
        status, answer = self._request("POST", "/_control", json.dumps(wishes))
        assert status == 200, answer

    def asked(self, path: str) -> int:
        """How often a path was asked for so far."""
        return int(json.loads(self._request("GET", "/_control")[1])["asked"].get(path, 0))

    def status(self, path: str, method: str = "GET", **headers: str) -> int:
        """The status of one request; names of headers have _ for -."""
        return self._request(method, path, None, {k.replace("_", "-"): v for k, v in headers.items()})[0]

    def _request(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        with closing(HTTPConnection(self.url.removeprefix("http://"), timeout=180)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextmanager
def run_metadata() -> Iterator[Metadata]:
    """Start it on a free port; it is gone afterwards."""
    words = [sys.executable, "-m", "cloudrec.sandbox", "metadata", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Metadata(json.loads(process.stdout.readline()))
        finally:
            process.kill()
