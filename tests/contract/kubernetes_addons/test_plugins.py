"""Add-ons make GPUs and network adapters allocatable on nodes that have them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cloudrec.engine.clock import Clock
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.health import health
from cloudrec.transport import profile_of
from tests.contract.kubernetes_addons.support import Server

POOL = {"pool": "gpu"}
RELEASE = "kubernetes.azure.com/os-sku-effective"
ND = "Standard_ND96isr_H100_v5"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
MACHINES: dict[str, tuple[str, dict[str, Any]]] = {
    "p4d.24xlarge": (
        "efa",
        {"hardware": {"gpus": 8, "efa": 4}, "capacity": {"hugepages-2Mi": "10256Mi"}, "labels": POOL},
    ),
    ND: ("infiniband", {}),
}


def _nd(name: str = "gpu", count: int = 2, release: str = "24.04", label: str = "") -> dict[str, Any]:
    """Return a pool of AKS nodes with InfiniBand cards and without their driver."""
    return {
        "name": name,
        "count": count,
        "labels": {**POOL, RELEASE: f"Ubuntu{(label or release).replace('.', '')}"},
        "taints": [TAINT],
        "hardware": {"gpus": 8, "infiniband": 8},
        "os_image": f"Ubuntu {release}.3 LTS",
    }


def _target(server: Server, fabric: str = "infiniband", machine: str = ND) -> ClusterTarget:
    resources = profile_of(fabric, machine).pod_resources(8)
    return server.target(fabric=fabric, instance_type=machine, resources=resources, node_selector=POOL)


def _cards(kube: Kube) -> dict[str, str]:
    return {
        node["metadata"]["name"]: node["status"]["allocatable"].get("rdma/ib", "")
        for node in kube.list("Node")
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_gpus_and_network_adapters_are_allocatable_once_the_addons_are_installed(
    kube: Kube, server: Server, machine: str
) -> None:
    fabric, nodes = MACHINES[machine]
    server.control(nodes=[{**_nd(), **nodes}])
    target = _target(server, fabric, machine)
    assert [each.check for each in health.check(kube, target) if not each.ok]
    said: list[str] = []
    manage.converge(kube, target, "demo", "tester", said.append, clock=Clock(speed=5.0), wait_s=120.0)
    assert not [line for line in said if "not ready" in line]
    assert [each for each in health.check(kube, target) if not each.ok] == []
    manage.remove_all(kube, "demo", report=said.append)
    assert kube.list("DaemonSet") == []


def test_infiniband_cards_are_not_allocatable_before_their_driver_is_loaded(
    kube: Kube, server: Server
) -> None:
    server.control(nodes=[_nd()])
    target, said = _target(server), list[str]()
    manage.install(
        kube,
        "rdma-device-plugin",
        target,
        cluster="demo",
        owner="tester",
        report=said.append,
        wait_s=1.0,
    )
    assert [line for line in said if "0 of 2 pods are ready" in line]
    assert set(_cards(kube).values()) == {""}
    manage.converge(kube, target, "demo", "tester", said.append, clock=Clock(speed=5.0), wait_s=120.0)
    assert set(_cards(kube).values()) == {"8"}


def test_each_node_gets_the_driver_of_its_ubuntu_release(kube: Kube, server: Server) -> None:
    server.control(nodes=[_nd("jammy", 1, "22.04"), _nd("noble", 1, "24.04")])
    said: list[str] = []
    manage.converge(
        kube, _target(server), "demo", "tester", said.append, clock=Clock(speed=5.0), wait_s=120.0
    )
    assert not [line for line in said if "not ready" in line]
    pods = [pod for pod in kube.list("Pod", namespace="kube-system") if "doca" in pod["metadata"]["name"]]
    images = {pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"] for pod in pods}
    assert {node: image.rpartition("-ubuntu")[2] for node, image in images.items()} == {
        "jammy-0": "22.04-amd64",
        "noble-0": "24.04-amd64",
    }
    assert _cards(kube) == {"jammy-0": "8", "noble-0": "8"}


def test_the_driver_of_another_ubuntu_release_fails_and_the_cards_stay_unusable(
    kube: Kube, server: Server
) -> None:
    server.control(nodes=[_nd("gpu", 1, "24.04", label="22.04")])
    said: list[str] = []
    manage.converge(kube, _target(server), "demo", "tester", said.append, wait_s=1.0)
    assert "DaemonSet cloudrec-doca-driver-ubuntu2204 is not ready yet: 0 of 1 pods are ready" in said
    assert _cards(kube) == {"gpu-0": ""}


def test_a_driver_without_the_folder_of_its_modules_fails(kube: Kube, server: Server) -> None:
    server.control(nodes=[_nd("gpu", 1)])
    manage.converge(
        kube, _target(server), "demo", "tester", lambda _: None, clock=Clock(speed=5.0), wait_s=120.0
    )
    (driver,) = [
        each
        for each in kube.list("DaemonSet", namespace="kube-system")
        if each["metadata"]["name"] == "cloudrec-doca-driver-ubuntu2404"
    ]
    made = {key: driver[key] for key in ("apiVersion", "kind", "spec")}
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"] = [
        each for each in container["volumeMounts"] if each["mountPath"] != "/mnt/drivers-inventory"
    ]
    name = "without"
    marks = {"app": name}
    made["spec"]["selector"]["matchLabels"] = made["spec"]["template"]["metadata"]["labels"] = marks
    kube.create({**made, "metadata": {"name": name, "namespace": "kube-system"}})

    def states() -> list[str]:
        pods = kube.list("Pod", namespace="kube-system", labels=marks)
        found = [each for pod in pods for each in pod["status"].get("containerStatuses") or ()]
        return [key for each in found for key in (*each.get("state", {}), *each.get("lastState", {}))]

    deadline = time.monotonic() + 30
    while "terminated" not in states():
        assert time.monotonic() < deadline, states()
        time.sleep(0.05)


def test_nodes_whose_image_has_the_driver_need_no_addon_for_it(kube: Kube, server: Server) -> None:
    node = {**_nd(), "hardware": {"gpus": 8, "infiniband": 8, "rdma_driver": 1}}
    server.control(nodes=[node])
    target = _target(server, machine="")
    assert "doca-driver" not in {addon.name for addon in manage.needed(target)}
    said: list[str] = []
    manage.converge(kube, target, "demo", "tester", said.append, clock=Clock(speed=5.0), wait_s=120.0)
    assert set(_cards(kube).values()) == {"8"}


def test_a_cluster_with_the_network_operator_keeps_its_driver(kube: Kube, server: Server) -> None:
    server.control(nodes=[_nd()])
    names = {"plural": "nicclusterpolicies", "singular": "nicclusterpolicy", "kind": "NicClusterPolicy"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    kube.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nicclusterpolicies.mellanox.com"},
            "spec": {
                "group": "mellanox.com",
                "scope": "Cluster",
                "names": {**names, "listKind": "NicClusterPolicyList"},
                "versions": [version],
            },
        }
    )
    said: list[str] = []
    manage.converge(kube, _target(server), "demo", "tester", said.append, wait_s=0)
    exists = "doca-driver exists already (the kind nicclusterpolicies.mellanox.com is defined)"
    assert f"{exists} and is not changed" in said
    assert not [each for each in kube.list("DaemonSet") if "doca" in each["metadata"]["name"]]
