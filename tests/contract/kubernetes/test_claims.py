"""Devices by dynamic resource allocation: pods claim GPUs and cards where no device plugin gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons.manage import needed
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.health import health
from cloudrec.kubernetes.quantities import amount
from cloudrec.launchers import launcher
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.providers.kubernetes.nodes.devices import listed
from cloudrec.providers.kubernetes.nodes.nodes import pool_of
from cloudrec.providers.kubernetes.settings import KubernetesSettings
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_true

API = "resource.k8s.io/v1"
CLASS, SLICE, CLAIM = (f"{API}/{kind}" for kind in ("DeviceClass", "ResourceSlice", "ResourceClaim"))
GPU, EFA = "gpu.nvidia.com", "efa.networking.k8s.aws"
DRIVERS = {GPU: "gpu.nvidia.com", EFA: "dra.net"}
NODE = {
    "name": "p5",
    "count": 2,
    "capacity": {"cpu": "16", "memory": "64Gi", "hugepages-2Mi": "5120Mi"},
    "labels": {"pool": "gpu"},
}
SETTINGS = {"cpus": 2, "memory_gib": 4}


def device_class(name: str) -> dict[str, Any]:
    expression = f"device.driver == '{DRIVERS[name]}'"
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def device_slice(name: str, node: str, count: int, *, generation: int = 1) -> dict[str, Any]:
    """The slice by which a driver lists the devices of a node."""
    kind = {"type": {"string": "gpu"}} if name == GPU else {}
    devices = [{"name": f"device-{number}", "attributes": kind} for number in range(count)]
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{name}-{generation}"},
        "spec": {
            "driver": DRIVERS[name],
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    server.control(nodes=[NODE], processes=False, bookkeeping={}, operators=[], images={IMAGE: "present"})
    yield Site(server, tmp_path)
    disconnect()


@pytest.fixture
def drivers(site: Site, kube: Kube) -> Iterator[list[str]]:
    """Both drivers on two nodes; afterwards their objects and all claims are gone."""
    names = sorted(each["metadata"]["name"] for each in kube.list("Node"))
    for name in (GPU, EFA):
        kube.create(device_class(name))
        for node in names:
            kube.create(device_slice(name, node, 8 if name == GPU else 32))
    yield names
    for job in kube.list("Job", namespace=site.server.namespace):
        kube.delete("Job", job["metadata"]["name"], namespace=site.server.namespace)
    await_true(lambda: not kube.list(CLAIM))
    for kind in (CLASS, SLICE):
        for each in kube.list(kind):
            kube.delete(kind, each["metadata"]["name"])


def adopted(server: Server, kube: Kube) -> ClusterTarget:
    """The target of the cluster, as the provider for adopted clusters describes it."""
    nodes, claims = listed(kube)
    pool = pool_of(nodes, KubernetesSettings(context="c"))
    return server.target(
        fabric=pool.fabric,
        resources=dict(pool.resources),
        claims=[each for each in claims if each.resource in pool.resources],
        node_selector={"pool": "gpu"},
        instance_type="p5.48xlarge",
    )


def spec_of(site: Site, kube: Kube, name: str, **changes: Any) -> Any:
    target = adopted(site.server, kube)
    own = {
        key: getattr(target, key)
        for key in ("fabric", "resources", "claims", "node_selector", "instance_type")
    }
    return site.spec(name, settings=SETTINGS, target=own, **changes)


def test_an_adopted_cluster_gives_its_devices_by_claims(site: Site, kube: Kube, drivers: list[str]) -> None:
    target = adopted(site.server, kube)
    assert target.resources == {
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "32",
        "hugepages-2Mi": "5120Mi",
    }
    assert target.fabric == "efa"
    assert [each.device_class for each in target.claims] == [GPU, EFA]
    # A plugin beside the driver would offer the same devices twice.
    assert needed(target) == []
    found = {each.check: each for each in health.check(kube, target)}
    assert found["nvidia.com/gpu on each node"].ok
    assert found["vpc.amazonaws.com/efa on each node"].ok
    kube.create(device_slice(EFA, drivers[0], 31, generation=2))
    (short,) = [each for each in health.check(kube, target) if each.check.startswith("vpc.amazonaws.com")]
    assert (short.ok, short.found) == (False, f"1 of 2 nodes have them; {drivers[0]} has 31")


def test_pods_claim_the_devices_of_a_whole_node(site: Site, kube: Kube, drivers: list[str]) -> None:
    spec = spec_of(site, kube, "claims")
    engine, run = site.create(spec)
    engine.preflight(spec)
    engine.submit(run)
    asked = {}
    for template in kube.list(f"{API}/ResourceClaimTemplate", namespace=site.server.namespace):
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        asked[template["metadata"]["name"]] = request["exactly"]
        assert template["metadata"]["ownerReferences"][0]["name"] == "claims"
    assert {name: (each["deviceClassName"], each["count"]) for name, each in asked.items()} == {
        "claims-devices-0": (GPU, 8),
        "claims-devices-1": (EFA, 32),
    }
    (job,) = kube.list("Job", namespace=site.server.namespace)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["resourceClaims"] == [
        {"name": f"devices-{number}", "resourceClaimTemplateName": f"claims-devices-{number}"}
        for number in range(2)
    ]
    assert container["resources"]["claims"] == [{"name": "devices-0"}, {"name": "devices-1"}]
    for part in ("requests", "limits"):
        assert not {"nvidia.com/gpu", "vpc.amazonaws.com/efa"} & set(container["resources"][part])
        assert amount(container["resources"][part]["hugepages-2Mi"]) == amount("5120Mi")
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert (variables["CLOUDREC_GPUS"], variables["CLOUDREC_CARDS"]) == ("8", "32")
    if site.server.announcement is not None:
        return  # the stand-in's scheduler allocates no claims
    await_true(lambda: len(allocated(kube)) == 2 * len(drivers), patience_s=60)
    assert sorted(allocated(kube)) == sorted((node, count) for node in drivers for count in (8, 32))
    later = spec_of(site, kube, "later")
    with pytest.raises(PreflightError, match="only 0 of 2 have them: other pods use the rest"):
        launcher("torchrun").preflight(later)


def allocated(kube: Kube) -> list[tuple[str, int]]:
    """The node and the number of the devices of each claim that the scheduler has allocated."""
    found = []
    for each in kube.list(CLAIM):
        results = ((each.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", [])
        found += [(pool, len(results)) for pool in {result["pool"] for result in results}]
    return found


def test_too_few_nodes_with_devices_are_refused(site: Site, kube: Kube, drivers: list[str]) -> None:
    spec = spec_of(site, kube, "many", nodes=3)
    with pytest.raises(PreflightError, match=r"needs 3 nodes with 8 nvidia\.com/gpu") as refused:
        launcher("torchrun").preflight(spec)
    assert f"{drivers[0]} offers" in refused.value.message


def test_a_device_plugin_or_a_missing_class_means_no_claims(
    site: Site, kube: Kube, drivers: list[str]
) -> None:
    kube.delete(CLASS, EFA)
    target = adopted(site.server, kube)
    assert [each.device_class for each in target.claims] == [GPU]
    assert "vpc.amazonaws.com/efa" not in target.resources
    for name in drivers:
        status = {"status": {part: {"nvidia.com/gpu": "8"} for part in ("capacity", "allocatable")}}
        kube.patch("Node", name, status, subresource="status")
    target = adopted(site.server, kube)
    assert (list(target.claims), target.resources["nvidia.com/gpu"]) == ([], "8")
    assert "nvidia-device-plugin" in {addon.name for addon in needed(target)}
