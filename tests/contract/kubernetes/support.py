"""The API server under test: the stand-in, a real one with nodes of this process, or a named one."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import AbsentError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.kubernetes import serve
from cloudrec_sandbox.kubernetes.api.definitions import of_operator
from cloudrec_sandbox.kubernetes.joined import JoinedNodes
from tests.standins.control_plane import KINDS

STAND_IN, CONTROL_PLANE = "stand-in", "control-plane"
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
REAL = "CLOUDREC_TEST_KUBECONFIG"


@dataclass
class Server:
    """One API server, and a namespace of the test."""

    kubeconfig: str
    context: str
    announcement: dict[str, Any] | None = None  # of the stand-in
    nodes: JoinedNodes | None = None  # of a real control plane
    namespace: str = field(default_factory=lambda: f"cloudrec-test-{uuid.uuid4().hex[:8]}")
    served: list[str] = field(default_factory=list)  # the definitions that a test has added to a real server

    def target(self, **changes: Any) -> ClusterTarget:
        usual = {
            "kubeconfig": self.kubeconfig,
            "context": self.context,
            "namespace": self.namespace,
            "service_account": "trainer",
            "fabric": "tcp",
        }
        return ClusterTarget(**{**usual, **changes})

    def connect(self, **changes: Any) -> Kube:
        return Kube.connect(self.target(**changes))

    def control(self, **wishes: Any) -> dict[str, Any]:
        """Configure the stand-in, or the nodes of a real control plane; skip what that does not have."""
        if self.nodes is None:
            return self._control.order(**wishes)
        if (operators := wishes.get("operators")) is not None:
            self._serve_only(operators)
        try:
            found = self.nodes.order(**wishes)
        except ValueError as error:
            pytest.skip(str(error))
        if "nodes" in wishes:
            self._await_nodes()
        return found

    def _await_nodes(self) -> None:
        """Wait until the node lifecycle controller has removed its taint from new nodes."""
        deadline = time.monotonic() + 60
        with self.connect() as kube:
            while any(
                taint["key"] == "node.kubernetes.io/not-ready"
                for node in kube.list("Node")
                for taint in node["spec"].get("taints") or ()
            ):
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def _serve_only(self, operators: Sequence[str]) -> None:
        """Serve exactly these operators' kinds on a real control plane, as the stand-in does."""
        assert self.nodes is not None
        wanted = {each["metadata"]["name"] for name in operators for each in of_operator(name)}
        if not set(self.served) <= wanted:
            self.nodes.order(operators=[])
            self.remove_kinds()
        for name in operators:
            self.serve_kinds(name)

    def serve_kinds(self, operator: str) -> None:
        """Serve an operator's kinds; a real server gets the published definitions where there are some."""
        if self.announcement is not None:
            self.control(operators=list({*self.control()["operators"], operator}))
            return
        if self.nodes is None:
            pytest.skip(f"this server has no operator for {operator}")
        with self.connect() as kube:
            for name, definition in _definitions(operator):
                if name not in self.served:
                    made = kube.apply(definition())
                    self.served.append(name)
                    _await_served(kube, made["spec"])

    def remove_kinds(self) -> None:
        """Delete the operators' kinds from a real server, which other modules' tests expect without them."""
        with self.connect() as kube:
            for name in self.served:
                kube.delete("CustomResourceDefinition", name)
            deadline = time.monotonic() + 60
            kind = "CustomResourceDefinition"
            while any(each["metadata"]["name"] in self.served for each in kube.list(kind)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        self.served.clear()

    def calls(self, since: int) -> list[str]:
        """The requests after the first n, such as "list pods"."""
        return [call["action"] for call in self._control.ask("GET", f"/calls?since={since}")]

    @property
    def _control(self) -> Control:
        if self.announcement is None:
            pytest.skip("a real server takes no orders and counts no calls")
        return Control.of(self.announcement)


def _await_served(kube: Kube, spec: Mapping[str, Any]) -> None:
    """Wait until the server answers for a new kind, which takes some seconds where it is busy."""
    version = next(each["name"] for each in spec["versions"] if each["served"])
    deadline = time.monotonic() + 60
    while True:
        try:
            kube.raw("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
        except AbsentError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def _definitions(operator: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The names of an operator's definitions, and what reads each: some have a megabyte."""
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    for open_ in of_operator(operator):
        group, plural = open_["spec"]["group"], open_["spec"]["names"]["plural"]
        published = KINDS / f"{group}_{plural}.yaml"
        read = partial(_read, published) if published.exists() else partial(dict, head, **open_)
        yield open_["metadata"]["name"], read


def _read(path: Path) -> dict[str, Any]:
    # The parser in Python takes ten seconds for a megabyte.
    read: dict[str, Any] = yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    return read


@contextmanager
def joined_server(kubeconfig: Path) -> Iterator[Server]:
    """A real control plane, with two nodes of this process."""
    with JoinedNodes(kubeconfig) as nodes:
        nodes.order(nodes=NODES)
        server = Server(kubeconfig=str(kubeconfig), context="", nodes=nodes)
        try:
            yield server
        finally:
            server.remove_kinds()


@contextmanager
def api_server() -> Iterator[Server]:
    """The stand-in, or the server that the environment names."""
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
            announcement=told,
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
