"""The metadata stand-in as a separate process: `python -m cloudrec_sandbox metadata`."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET = {"aws": None, "azure": None, "gcp": None, "fault": None, "delay_s": 0}


class Metadata:
    """A running stand-in."""

    def __init__(self, announcement: dict[str, Any]) -> None:
        self.url: str = announcement["endpoints"]["metadata"]
        self.env: dict[str, str] = announcement["env"]
        self._control = Control.of(announcement)

    def control(self, **wishes: Any) -> None:
        """Change its answers."""
        self._control.order(**wishes)

    def asked(self, path: str) -> int:
        """Return the number of requests for a path so far."""
        return int(self._control.ask("GET")["asked"].get(path, 0))

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
    """Run a stand-in on a free port until the block ends."""
    words = [sys.executable, "-m", "cloudrec_sandbox", "metadata", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Metadata(json.loads(process.stdout.readline()))
        finally:
            process.kill()
