"""Nodes of this process join an API server: its scheduler's pods run on them as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec_sandbox.kubernetes.joined import JoinedNodes
from cloudrec_sandbox.kubernetes.scheduling.nodes import POOL
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import await_true

_POOL = "joined"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder


@pytest.fixture(scope="module")
def joined(server: Server) -> Iterator[JoinedNodes]:
    with JoinedNodes(Path(server.kubeconfig)) as nodes:
        nodes.order(nodes=[{"name": _POOL, "count": 1, "taints": [{"key": _POOL, "effect": "NoSchedule"}]}])
        yield nodes


def _pod(server: Server, name: str, script: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/cloudrec-shell",
        "command": ["/bin/sh", "-c", script],
        "env": [
            {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "one"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": server.namespace},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {POOL: _POOL},
            "tolerations": [{"key": _POOL, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 20,
            "serviceAccountName": server.target().service_account,
            "containers": [container],
        },
    }


def _status(kube: Kube, server: Server, name: str) -> dict[str, Any]:
    found = kube.get("Pod", name, namespace=server.namespace) or {}
    status: dict[str, Any] = found.get("status", {})
    return status


@pytest.fixture
def words(server: Server, kube: Kube) -> None:
    metadata = {"name": "words", "namespace": server.namespace}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"one": "hello"}})


@pytest.mark.usefixtures("words")
def test_a_pod_runs_to_its_end_and_its_status_and_output_are_the_servers(
    server: Server, kube: Kube, joined: JoinedNodes
) -> None:
    script = f"echo $WORD from $NODE; test -s {_TOKEN}/token && cat {_TOKEN}/namespace && exit 3"
    kube.create(_pod(server, "ends", script))
    await_true(lambda: _status(kube, server, "ends").get("phase") == "Failed")
    (container,) = _status(kube, server, "ends")["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    if server.announcement is None:  # the stand-in asks its own nodes alone for output
        lines = list(kube.logs("ends", namespace=server.namespace))
        assert lines == [f"hello from {_POOL}-0", server.namespace]
        with pytest.raises(KubeError, match="previous terminated container"):
            list(kube.logs("ends", namespace=server.namespace, previous=True))
    assert joined.nodes.document()[0]["name"] == _POOL


@pytest.mark.usefixtures("words", "joined")
def test_a_deleted_pod_gets_its_grace_and_then_its_object_is_gone(server: Server, kube: Kube) -> None:
    script = "trap 'sleep 1; exit 0' TERM; echo ready > /dev/termination-log; while :; do sleep 0.1; done"
    kube.create(_pod(server, "leaves", script))
    await_true(lambda: _status(kube, server, "leaves").get("phase") == "Running")
    kube.delete("Pod", "leaves", namespace=server.namespace)
    ending = kube.get("Pod", "leaves", namespace=server.namespace)
    assert ending is not None
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    await_true(lambda: kube.get("Pod", "leaves", namespace=server.namespace) is None)


@pytest.mark.usefixtures("words", "joined")
def test_a_node_keeps_its_lease_and_is_ready(kube: Kube) -> None:
    node, lease = (
        kube.get("Node", f"{_POOL}-0"),
        kube.get("coordination.k8s.io/v1/Lease", f"{_POOL}-0", namespace="kube-node-lease"),
    )
    assert node is not None
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == node["metadata"]["name"]
    ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
    assert ready == ["True"]


@pytest.mark.usefixtures("words")
def test_a_preempted_node_ends_its_pods_in_their_grace_as_disrupted(
    server: Server, kube: Kube, joined: JoinedNodes
) -> None:
    kube.create(_pod(server, "taken", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    await_true(lambda: _status(kube, server, "taken").get("phase") == "Running")
    joined.order(node_timing={"grace_s": 60}, evict={"node": f"{_POOL}-0", "how": "spot"})
    await_true(lambda: _status(kube, server, "taken").get("phase") == "Failed")
    conditions = _status(kube, server, "taken")["conditions"]
    assert ("DisruptionTarget", "True") in {(each["type"], each["status"]) for each in conditions}
    node = kube.get("Node", f"{_POOL}-0")
    assert node is not None
    assert node["spec"]["unschedulable"]
    joined.order(nodes=[])
    assert kube.get("Node", f"{_POOL}-0") is None
