"""Add-ons make GPUs and network adapters allocatable on nodes that have them."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.engine.clock import Clock
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.health import health
from cloudrec.transport import profile_of
from tests.contract.kubernetes_addons.support import Server

POOL = {"pool": "gpu"}


MACHINES: dict[str, tuple[str, dict[str, int], dict[str, str]]] = {
    "p4d.24xlarge": ("efa", {"gpus": 8, "efa": 4}, {"hugepages-2Mi": "10256Mi"}),
    "Standard_ND96isr_H100_v5": ("infiniband", {"gpus": 8, "infiniband": 8}, {}),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_gpus_and_network_adapters_are_allocatable_once_the_addons_are_installed(
    kube: Kube, server: Server, machine: str
) -> None:
    fabric, hardware, pages = MACHINES[machine]
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    pool: dict[str, Any] = {"name": "gpu", "count": 2, "labels": POOL, "taints": [taint], "capacity": pages}
    server.control(nodes=[{**pool, "hardware": hardware}])
    resources = profile_of(fabric, machine).pod_resources(8)
    target = server.target(fabric=fabric, instance_type=machine, resources=resources, node_selector=POOL)
    assert [each.check for each in health.check(kube, target) if not each.ok]
    said: list[str] = []
    manage.converge(kube, target, "demo", "tester", said.append, clock=Clock(speed=5.0), wait_s=120.0)
    assert not [line for line in said if "not ready" in line]
    assert [each for each in health.check(kube, target) if not each.ok] == []
    manage.remove_all(kube, "demo", report=said.append)
    assert kube.list("DaemonSet") == []
