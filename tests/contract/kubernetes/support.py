"""An API server to speak with: the stand-in, or a real one that CLOUDREC_TEST_KUBECONFIG names."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest

from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target
from cloudrec.sandbox.kubernetes import serve

REAL = "CLOUDREC_TEST_KUBECONFIG"


@dataclass
class Server:
    """One API server, and a namespace of one's own on it."""

    kubeconfig: str
    context: str
    endpoint: str = ""  # of the stand-in
    authority: str = ""
    namespace: str = field(default_factory=lambda: f"cloudrec-test-{uuid.uuid4().hex[:8]}")

    def target(self, **changes: Any) -> Target:
        usual = {
            "kubeconfig": self.kubeconfig,
            "context": self.context,
            "namespace": self.namespace,
            "service_account": "trainer",
            "fabric": "tcp",
        }
        return Target(**{**usual, **changes})

    def connect(self, **changes: Any) -> Kube:
        return Kube.connect(self.target(**changes))

    def control(self, **wishes: Any) -> dict[str, Any]:
        """Change the stand-in; a real server has no such thing."""
        document: dict[str, Any] = self._asked("/_control", json.dumps(wishes).encode())
        return document

    def calls(self, since: int) -> list[str]:
        """What clients have asked for after so many calls: "list pods"."""
        return [call["action"] for call in self._asked(f"/_control/calls?since={since}", None)]

    def _asked(self, path: str, body: bytes | None) -> Any:
        if not self.endpoint:
            pytest.skip("a real server has no faults to order")
        request = urllib.request.Request(f"{self.endpoint}{path}", data=body)  # noqa: S310 - our own
        request.add_header("Content-Type", "application/json")
        context = ssl.create_default_context(cafile=self.authority)
        with urllib.request.urlopen(request, timeout=180, context=context) as answer:  # noqa: S310 - our own
            return json.loads(answer.read() or b"{}")


@contextmanager
def api_server() -> Iterator[Server]:
    """The server that the environment asks for."""
    if named := os.environ.get(REAL):
        yield Server(kubeconfig=named, context="")
        return
    server = serve(0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    told = server.announcement()
    try:
        yield Server(
            kubeconfig=told["env"]["KUBECONFIG"],
            context="cloudrec-sandbox",
            endpoint=told["endpoints"]["kubernetes"],
            authority=told["certificate_authority"],
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "data": data,
    }
