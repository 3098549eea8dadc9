"""Shared helpers of the add-on tests: a server of releases, and one small release."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

import yaml

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.kubernetes import serve


@dataclass(frozen=True)
class Server:
    """The stand-in of a cluster that the test owns."""

    kubeconfig: str
    announcement: dict[str, Any]
    namespace: str = "runs"

    def target(self, **changes: Any) -> ClusterTarget:
        usual = {
            "kubeconfig": self.kubeconfig,
            "context": "cloudrec-sandbox",
            "namespace": self.namespace,
            "service_account": "trainer",
            "fabric": "tcp",
            "node_selector": {"pool": "gpu"},
        }
        return ClusterTarget(**{**usual, **changes})

    def connect(self) -> Kube:
        return Kube.connect(self.target())

    def control(self, **wishes: Any) -> None:
        """Configure the stand-in."""
        Control.of(self.announcement).order(**wishes)


@contextmanager
def stand_in() -> Iterator[Server]:
    """Run one stand-in for the duration of the block."""
    server = serve(0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    told = server.announcement()
    try:
        yield Server(
            kubeconfig=told["env"]["KUBECONFIG"],
            announcement=told,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Releases:
    """Serves files over loopback; a missing file is a 404."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        files = self.files

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, path: str, content: bytes) -> tuple[str, str]:
        """Serve a file; return its address and its hash."""
        self.files[path] = content
        return f"http://127.0.0.1:{self._server.server_port}{path}", hashlib.sha256(content).hexdigest()


def operator(version: str) -> list[dict[str, Any]]:
    """A small operator's objects, in arbitrary order."""
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            },
                        }
                    },
                }
            ],
        },
    }
    widget = {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": "its-own", "namespace": "operator"},
        "spec": {"version": version},
    }
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"settings-{version}", "namespace": "operator"},
        "data": {"version": version},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operator"}}
    return [widget, settings, crd, namespace]


def text_of(objects: list[dict[str, Any]]) -> bytes:
    return yaml.safe_dump_all(objects).encode()


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """A .tar.gz as GitHub creates it: all files below one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"project-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def node(
    kube: Kube,
    name: str,
    allocatable: Mapping[str, str],
    *,
    capacity: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ready: str = "True",
) -> None:
    """Add a node with these allocatable resources and no pods."""
    kube.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}}
    )
    status = {
        "capacity": dict(capacity if capacity is not None else allocatable),
        "allocatable": dict(allocatable),
        "conditions": [{"type": "Ready", "status": ready}],
    }
    kube.patch("Node", name, {"status": status}, subresource="status")
