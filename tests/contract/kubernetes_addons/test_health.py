"""The checks of a cluster's nodes, each with a remedy."""

from __future__ import annotations

from cloudrec.findings import Finding
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.health import health
from tests.contract.kubernetes_addons.support import Server, node

WHOLE = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
POOL = {"pool": "gpu"}


def checked(kube: Kube, server: Server) -> dict[str, Finding]:
    target = server.target(fabric="efa", instance_type="p5.48xlarge", resources=WHOLE, node_selector=POOL)
    return {finding.check: finding for finding in health.check(kube, target)}


def test_a_cluster_without_nodes_is_reported(kube: Kube, server: Server) -> None:
    finding = checked(kube, server)["nodes for runs"]
    assert (finding.ok, finding.found, finding.needed) == (False, "none", "with pool=gpu")
    assert "cloudrec up" in finding.remedy


def test_complete_nodes_pass(kube: Kube, server: Server) -> None:
    for number in range(3):
        node(kube, f"gpu-{number}", {**WHOLE, "hugepages-2Mi": "10256Mi"}, labels=POOL)
    found = checked(kube, server)
    for name in ("nodes for runs", "nodes ready", *(f"{resource} on each node" for resource in WHOLE)):
        assert found[name].ok, found[name]


def test_a_missing_resource_is_reported_with_the_node_and_the_addon_that_provides_it(
    kube: Kube, server: Server
) -> None:
    node(kube, "gpu-1", WHOLE, labels=POOL)
    node(kube, "gpu-2", {"nvidia.com/gpu": "8", "hugepages-2Mi": "5120Mi"}, labels=POOL)
    node(kube, "gpu-3", {**WHOLE, "nvidia.com/gpu": "7"}, capacity=WHOLE, labels=POOL)
    node(kube, "plain-1", {})
    found = checked(kube, server)
    cards, gpus = found["vpc.amazonaws.com/efa on each node"], found["nvidia.com/gpu on each node"]
    assert (cards.ok, cards.found) == (False, "2 of 3 nodes have them; gpu-2 has 0")
    assert cards.needed == "32 allocatable on each"
    assert "efa-device-plugin" in cards.remedy
    assert (gpus.ok, gpus.found) == (False, "2 of 3 nodes have them; gpu-3 has 7")
    assert "unhealthy" in gpus.remedy
    assert not gpus.blocks


def test_missing_huge_pages_are_reported_as_a_setting_of_the_machine(kube: Kube, server: Server) -> None:
    node(kube, "gpu-1", {**WHOLE, "hugepages-2Mi": "0"}, labels=POOL)
    finding = checked(kube, server)["hugepages-2Mi on each node"]
    assert finding.blocks
    assert "machine" in finding.remedy


def test_lost_nodes_are_counted(kube: Kube, server: Server) -> None:
    node(kube, "gpu-1", WHOLE, labels=POOL)
    node(kube, "gpu-2", WHOLE, labels=POOL, ready="Unknown")
    finding = checked(kube, server)["nodes ready"]
    assert (finding.ok, finding.found, finding.blocks) == (False, "1 of 2; not gpu-2", False)


def test_nodes_that_the_clouds_agents_report_are_named_with_the_reason(kube: Kube, server: Server) -> None:
    for name, status in (("gpu-1", "True"), ("gpu-2", "False")):
        node(kube, name, WHOLE, labels=POOL)
        row = kube.get("Node", name)
        assert row is not None
        mark = {"type": "XIDErrors", "status": status, "reason": "XID 79 in the kernel's log"}
        change = {"status": {"conditions": [*row["status"]["conditions"], mark]}}
        kube.patch("Node", name, change, subresource="status")
    target = server.target(resources=WHOLE, node_selector=POOL, unhealthy={"XIDErrors": "True"})
    found = {finding.check: finding for finding in health.check(kube, target)}["nodes healthy"]
    assert (found.ok, found.found) == (False, "gpu-1: XIDErrors (XID 79 in the kernel's log)")
    assert "nodes healthy" not in checked(kube, server), "an adopted cluster's agents are not known"


def test_missing_addons_are_reported_and_installed_addons_are_checked(kube: Kube, server: Server) -> None:
    missing = checked(kube, server)["add-on efa-device-plugin"]
    assert (missing.ok, missing.found) == (False, "not installed")
    manage.converge(kube, server.target(fabric="efa"), "demo", "tester", lambda _: None, wait_s=0)
    assert checked(kube, server)["add-on efa-device-plugin"].found != "not installed"


def test_many_nodes_are_reported_in_one_line(kube: Kube, server: Server) -> None:
    for number in range(12):
        node(kube, f"gpu-{number:02}", {}, labels=POOL)
    found = checked(kube, server)["nvidia.com/gpu on each node"].found
    assert found.startswith("0 of 12 nodes have them; gpu-00 has 0, gpu-01 has 0")
    assert found.endswith("and 7 more")


def test_an_obsolete_environment_variable_is_a_warning() -> None:
    (finding,) = health.settings({"FI_PROVIDER": "efa", "OMP_NUM_THREADS": "8"}, "efa")
    assert (finding.ok, finding.blocks, finding.check) == (False, False, "setting FI_PROVIDER")
    assert finding.remedy.startswith("leave it out")
