"""Add-ons are installed, upgraded and removed; objects of others are left alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError, UsageError
from cloudrec.kubernetes.addons import apply, inventory, manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import CardNetwork
from cloudrec.kubernetes.health import health
from cloudrec.kubernetes.manifests.shared import claim_name
from tests.contract.kubernetes_addons.support import Server, node, operator

DAEMON_SETS = {"cloudrec-nvidia-device-plugin", "cloudrec-efa-device-plugin"}
FORCED = "nvidia.com/gpu.present"
BUCKET = {
    "name": "bucket",
    "driver": "s3.csi.aws.com",
    "handle": "a-bucket",
    "capacity": "1Pi",
    "attributes": {"bucketName": "a-bucket"},
    "mount_options": ["allow-delete"],
}


def converged(kube: Kube, server: Server, **of: Any) -> list[str]:
    said: list[str] = []
    manage.converge(kube, server.target(**of), "demo", "tester", said.append, wait_s=0)
    return said


def record(version: str) -> inventory.AddonRecord:
    return inventory.AddonRecord(
        name="operator",
        version=version,
        sha256="0" * 64,
        cluster="demo",
        owner="tester",
        objects=(),
        is_whole=False,
    )


def applied(kube: Kube, version: str, **more: Any) -> apply.Applied:
    return apply.apply_all(kube, record(version), operator(version), clock=Clock(), **more)


def test_addons_of_the_fabric_are_installed_once(kube: Kube, server: Server) -> None:
    said = converged(kube, server, fabric="efa", volumes=[BUCKET])
    assert [line.split()[0] for line in said] == ["nvidia-device-plugin", "efa-device-plugin", "volumes"]
    mine = {
        "app.kubernetes.io/managed-by": "cloudrec",
        "cloudrec/cluster": "demo",
        "cloudrec/owner": "tester",
    }
    found = kube.list("DaemonSet", namespace="kube-system", labels=mine)
    assert {each["metadata"]["name"] for each in found} == DAEMON_SETS
    claim = kube.get("PersistentVolumeClaim", claim_name(BUCKET), namespace=server.namespace)
    assert claim is not None
    assert claim["spec"]["volumeName"] == claim_name(BUCKET).replace("cloudrec-", "cloudrec-demo-")
    again = converged(kube, server, fabric="efa", volumes=[BUCKET])
    assert [line.rpartition(" is ")[2] for line in again] == ["up to date"] * 3


def test_a_volume_with_another_cache_is_another_volume(kube: Kube, server: Server) -> None:
    converged(kube, server, volumes=[BUCKET])
    cached = {**BUCKET, "attributes": {"cache": "emptyDir", "cacheEmptyDirSizeLimit": "600Gi"}}
    target, said = server.target(volumes=[cached]), list[str]()
    manage.install(kube, "volumes", target, cluster="demo", owner="tester", report=said.append)
    found = kube.list("PersistentVolume")
    assert [each["spec"]["csi"]["volumeAttributes"] for each in found] == [cached["attributes"]]
    assert kube.get("PersistentVolumeClaim", claim_name(cached), namespace=server.namespace) is not None


def test_installed_addons_are_listed_with_their_versions(kube: Kube, server: Server) -> None:
    converged(kube, server, fabric="efa")
    found = {each.name: each for each in manage.listed(kube)}
    assert set(found) == {"nvidia-device-plugin", "efa-device-plugin"}
    plugin = found["nvidia-device-plugin"]
    assert plugin.version == plugin.newest == "v0.20.0"
    assert plugin.is_ours
    assert plugin.is_whole


def test_an_existing_plugin_is_left_alone(kube: Kube, server: Server) -> None:
    node(kube, "gpu-1", {"nvidia.com/gpu": "8"})
    said = converged(kube, server, fabric="tcp")
    (line,) = said
    assert line.startswith(
        "nvidia-device-plugin exists already (nvidia.com/gpu can be allocated on nodes: 1)"
    )
    assert kube.list("DaemonSet") == []
    (seen,) = manage.listed(kube)
    assert (seen.name, seen.is_ours) == ("nvidia-device-plugin", False)


def test_an_upgrade_deletes_objects_that_the_newer_version_lacks(kube: Kube) -> None:
    applied(kube, "1")
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is not None
    second = applied(kube, "2")
    assert [each.name for each in second.removed] == ["settings-1"]
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is None
    widget = kube.get("example.org/v1/Widget", "its-own", namespace="operator")
    assert widget is not None
    assert widget["spec"] == {"version": "2"}


def test_objects_of_another_account_are_taken_over_only_with_force(kube: Kube) -> None:
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operator"}})
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings-1", "namespace": "operator"},
        "data": {"version": "theirs"},
    }
    kube.create(theirs)
    with pytest.raises(PreflightError, match="exists already, and was not made by cloudrec"):
        applied(kube, "1")
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None
    applied(kube, "1", force=True)
    found = kube.get("ConfigMap", "settings-1", namespace="operator")
    assert found is not None
    assert found["data"] == {"version": "1"}
    assert manage.remove_all(kube, "demo", report=lambda _: None) == []
    assert kube.get("Namespace", "operator") is not None  # it existed before


def test_removing_an_addon_deletes_all_of_its_objects_and_no_others(kube: Kube) -> None:
    applied(kube, "1")
    kube.patch(
        "ConfigMap",
        "settings-1",
        {"metadata": {"labels": {"cloudrec/cluster": "another"}}},
        namespace="operator",
    )
    manage.remove(kube, "operator", report=lambda _: None)
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None
    assert inventory.read_all(kube) == []


def test_an_operator_with_existing_objects_is_removed_only_with_force(kube: Kube) -> None:
    applied(kube, "1")
    kube.create(
        {
            "apiVersion": "example.org/v1",
            "kind": "Widget",
            "metadata": {"name": "users", "namespace": "operator"},
            "spec": {},
        }
    )
    with pytest.raises(PreflightError, match="its kinds are in use, by 1 of Widget"):
        manage.remove(kube, "operator", report=lambda _: None)
    assert manage.remove_all(kube, "demo", report=lambda _: None) == ["operator"]
    assert manage.remove_all(kube, "another", report=lambda _: None) == []
    manage.remove(kube, "operator", report=lambda _: None, force=True)
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None


def test_an_interrupted_installation_is_reported_and_resumed(kube: Kube, server: Server) -> None:
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "NOT A NAME", "namespace": "operator"},
    }
    with pytest.raises(UsageError):
        apply.apply_all(kube, record("1"), [*operator("1"), broken], clock=Clock())
    (left,) = inventory.read_all(kube)
    assert not left.is_whole
    assert {each.name for each in left.objects} >= {"settings-1", "widgets.example.org"}
    (finding,) = [each for each in health.check(kube, server.target()) if each.check == "add-on operator"]
    assert not finding.ok
    applied(kube, "1")
    assert [each.is_whole for each in inventory.read_all(kube)] == [True]


def test_a_damaged_record_is_reported_with_its_remedy(kube: Kube) -> None:
    inventory.write(kube, dataclasses.replace(record("1"), is_whole=True))
    kube.patch(
        "ConfigMap", "cloudrec-addon-operator", {"data": {"objects": "nonsense"}}, namespace="kube-system"
    )
    with pytest.raises(PreflightError, match="is damaged") as refused:
        inventory.read_all(kube)
    assert "kubectl" in str(refused.value.remedy)


def test_a_cluster_without_the_network_kind_is_reported_before_any_change(kube: Kube, server: Server) -> None:
    cards = [CardNetwork(interface="eth1", network="n1", subnetwork="s1")]
    with pytest.raises(PreflightError, match=r"gke-networks needs the kind networking\.gke\.io/v1/Network"):
        converged(kube, server, fabric="tcpx", networks=cards, built_in=["nvidia-device-plugin"])
    assert inventory.read_all(kube) == []


def test_an_unknown_addon_is_refused_with_the_closest_match(kube: Kube, server: Server) -> None:
    with pytest.raises(UsageError, match="no add-on 'kubray'") as refused:
        manage.install(kube, "kubray", server.target(), cluster="c", owner="o", report=print)
    assert "kuberay" in str(refused.value.remedy)


def test_a_removal_waits_for_objects_that_keep_a_finalizer(kube: Kube) -> None:
    applied(kube, "1")
    held = {"metadata": {"finalizers": ["example.org/in-use"]}}
    kube.patch("example.org/v1/Widget", "its-own", held, namespace="operator")
    words = r"Widget its-own in operator is being deleted \(it keeps the finalizer example\.org/in-use\)"
    with pytest.raises(PreflightError, match=words) as caught:
        manage.remove(kube, "operator", report=lambda _: None, wait_s=0)
    assert "cloudrec addons remove operator" in (caught.value.remedy or "")
    # What would release it is still there, and the inventory names everything.
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is not None
    assert len(inventory.read_all(kube)) == 1
    kube.patch("example.org/v1/Widget", "its-own", {"metadata": {"finalizers": None}}, namespace="operator")
    manage.remove(kube, "operator", report=lambda _: None)
    assert inventory.read_all(kube) == []
    applied(kube, "2")  # at once: neither the kind nor the namespace is still being deleted
    assert kube.get("example.org/v1/Widget", "its-own", namespace="operator") is not None


def test_the_objects_of_others_go_before_the_operator_by_force(kube: Kube) -> None:
    applied(kube, "1")
    users = {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": "users", "namespace": "default", "finalizers": ["example.org/in-use"]},
        "spec": {},
    }
    kube.create(users)
    with pytest.raises(PreflightError, match="Widget users in default is being deleted"):
        manage.remove(kube, "operator", report=lambda _: None, force=True, wait_s=0)
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is not None


def test_an_addon_namespace_with_objects_of_others_is_kept(kube: Kube) -> None:
    applied(kube, "1")
    theirs = {"name": "theirs", "namespace": "operator"}
    kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs, "data": {"a": "1"}})
    lease = {"name": "left-behind", "namespace": "operator"}
    held = {"holderIdentity": "operator-7d9f_0b1e"}  # a pod that is gone
    kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease, "spec": held})
    said: list[str] = []
    manage.remove(kube, "operator", report=said.append)
    assert said[0] == ("namespace operator is kept, because cloudrec did not make ConfigMap theirs in it")
    assert kube.get("ConfigMap", "theirs", namespace="operator") is not None


def test_the_gpu_plugin_has_pods_on_nodes_with_gpus_only(kube: Kube, server: Server) -> None:
    target = server.target(node_selector={})
    server.control(nodes=[{"name": "plain", "count": 1}])
    with pytest.raises(PreflightError, match="no node has a label that says that it has NVIDIA GPUs") as e:
        manage.install(
            kube, "nvidia-device-plugin", target, cluster="demo", owner="ann", report=print, wait_s=0
        )
    assert "kubectl label node NAME nvidia.com/gpu.present=true" in (e.value.remedy or "")
    assert kube.list("DaemonSet") == []
    server.control(
        nodes=[{"name": "plain", "count": 1}, {"name": "gpu", "count": 1, "labels": {FORCED: "true"}}]
    )
    manage.install(kube, "nvidia-device-plugin", target, cluster="demo", owner="ann", report=print)
    pods = kube.list("Pod", namespace="kube-system")
    assert [each["spec"]["nodeName"] for each in pods] == ["gpu-0"]


@pytest.mark.parametrize("name", ["gpu-metrics", "fabric-metrics"])
def test_exporters_are_installed_on_request_alone_and_removed(kube: Kube, server: Server, name: str) -> None:
    target = server.target(fabric="efa")
    converged(kube, server, fabric="efa")
    found = f"cloudrec-{name}"
    assert found not in {each["metadata"]["name"] for each in kube.list("DaemonSet", namespace="kube-system")}
    said: list[str] = []
    manage.install(kube, name, target, cluster="demo", owner="tester", report=said.append, wait_s=0)
    (daemon,) = [
        each for each in kube.list("DaemonSet", namespace="kube-system") if each["metadata"]["name"] == found
    ]
    notes = daemon["spec"]["template"]["metadata"]["annotations"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert notes["prometheus.io/scrape"] == "true"
    assert notes["prometheus.io/port"] == str(container["ports"][0]["containerPort"])
    manage.remove(kube, name, report=said.append)
    assert found not in {each["metadata"]["name"] for each in kube.list("DaemonSet", namespace="kube-system")}
