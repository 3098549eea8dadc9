"""The Kubernetes stand-in as a separate process, so that its memory is not counted as cloudrec's."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A running stand-in.

    Attributes:
        endpoint: URL of its API server.
        authority: the file with its CA certificates.
        environment: the variables for its clients, including KUBECONFIG.
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
        """Change it; see `cloudrec_sandbox.kubernetes.controllers.settings`."""
        token = self.environment[TOKEN_VARIABLE]
        return Control(self.endpoint, token, authority=self.authority, timeout_s=300).order(**wishes)


@contextmanager
def kubernetes() -> Iterator[StandIn]:
    """Run a stand-in until the block ends."""
    command = [sys.executable, "-m", "cloudrec_sandbox", "kubernetes", "--port", "0"]
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
