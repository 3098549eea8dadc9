"""The Kubernetes stand-in as a process of its own, so that what it needs is not counted as ours."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A stand-in that answers.

    Attributes:
        endpoint: URL of its API server.
        authority: file of the certificates by which it is known.
        environment: what its clients need, KUBECONFIG among it.
        context: the context in that file.
    """

    endpoint: str
    authority: str
    environment: dict[str, str]
    context: str = "cloudrec-sandbox"

    @property
    def kubeconfig(self) -> str:
        """Path of the kubeconfig."""
        return self.environment["KUBECONFIG"]

    def control(self, **wishes: Any) -> dict[str, Any]:
        """Change it; see `cloudrec.sandbox.kubernetes.controllers.settings`."""
        body = json.dumps(wishes).encode()
        request = urllib.request.Request(f"{self.endpoint}/_control", data=body, method="POST")  # noqa: S310 - our own
        request.add_header("Content-Type", "application/json")
        context = ssl.create_default_context(cafile=self.authority)
        with urllib.request.urlopen(request, timeout=300, context=context) as answer:  # noqa: S310 - our own
            document: dict[str, Any] = json.loads(answer.read() or b"{}")
        return document


@contextmanager
def kubernetes() -> Iterator[StandIn]:
    """Run one until the block ends."""
    command = [sys.executable, "-m", "cloudrec.sandbox", "kubernetes", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        try:
            told = json.loads(process.stdout.readline())
            yield StandIn(
                endpoint=told["endpoints"]["kubernetes"],
                authority=told["certificate_authority"],
                environment=told["env"],
            )
        finally:
            process.terminate()
            process.wait()
