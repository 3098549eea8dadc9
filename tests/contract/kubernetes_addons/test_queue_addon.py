"""The add-on of queues comes and goes with Kueue, whether or not cloudrec has installed that."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons import inventory, manage
from cloudrec.kubernetes.addons.apply import apply_all
from cloudrec.kubernetes.addons.inventory import AddonRecord
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.queues.kinds import CLUSTER_QUEUE, LOCAL_QUEUE
from cloudrec_sandbox.kubernetes.api.definitions import of_operator
from tests.contract.kubernetes_addons.support import Server

_KIND = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
_NODE = {"name": "n", "count": 1, "capacity": {"cpu": "8", "memory": "32Gi"}, "labels": {"pool": "gpu"}}


def definitions() -> list[dict[str, Any]]:
    """The definitions of Kueue's kinds, as its release has them."""
    return [{**_KIND, **each} for each in of_operator("kueue")]


def await_kueue(kube: Kube) -> None:
    """Wait until the kinds are served, as a cluster's user does."""
    deadline = time.monotonic() + 30
    while not all(kube.kinds.has(kind) for kind in (CLUSTER_QUEUE, LOCAL_QUEUE)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_kueue_of_others_stays_as_it_is_and_gets_the_queue(kube: Kube, server: Server) -> None:
    server.control(nodes=[_NODE])
    theirs = [kube.create(each) for each in definitions()]
    await_kueue(kube)
    said: list[str] = []
    record = manage.install(
        kube, "kueue", server.target(), cluster="c", owner="ann", report=said.append, wait_s=0
    )
    assert record is None
    assert any("kueue exists already" in line for line in said)
    assert kube.get(LOCAL_QUEUE, "cloudrec", namespace=server.namespace) is not None
    for each in theirs:
        live = kube.live(each)
        assert live is not None
        assert live["metadata"]["uid"] == each["metadata"]["uid"]
        assert "cloudrec/addon" not in (live["metadata"].get("labels") or {})


def test_the_queue_goes_before_the_kueue_that_cloudrec_installed(kube: Kube, server: Server) -> None:
    server.control(nodes=[_NODE])
    record = AddonRecord(
        name="kueue", version="v1", sha256="", cluster="c", owner="ann", objects=(), is_whole=False
    )
    apply_all(kube, record, definitions(), clock=Clock())
    await_kueue(kube)
    manage.install(
        kube, "kueue-queues", server.target(), cluster="c", owner="ann", report=lambda _: None, wait_s=0
    )
    assert len(kube.list(CLUSTER_QUEUE)) == 1
    said: list[str] = []
    manage.remove(kube, "kueue", report=said.append)
    assert [line.partition(" ")[0] for line in said] == ["kueue-queues", "kueue"]
    assert not inventory.read_all(kube)
    assert not kube.kinds.has(CLUSTER_QUEUE)


def test_the_queue_is_not_made_without_kueue(kube: Kube, server: Server) -> None:
    server.control(nodes=[_NODE])
    with pytest.raises(PreflightError, match="kueue-queues needs kueue, which is not installed") as refused:
        manage.install(
            kube, "kueue-queues", server.target(), cluster="c", owner="ann", report=lambda _: None, wait_s=0
        )
    assert "addons install kueue" in str(refused.value.remedy)
