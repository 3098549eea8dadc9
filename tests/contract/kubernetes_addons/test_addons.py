"""Add-ons come into a cluster, are upgraded and go again; what is somebody else's is left alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cloudrec.cluster import addons, addons_apply, health, inventory
from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError, UsageError
from cloudrec.kube.client import Kube
from tests.contract.kubernetes_addons.support import Server, node, operator

DAEMON_SETS = {"cloudrec-nvidia-device-plugin", "cloudrec-efa-device-plugin"}
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
    addons.converge(kube, server.target(**of), "demo", "tester", said.append, wait_s=0)
    return said


def record(version: str) -> inventory.Record:
    return inventory.Record(
        name="operator",
        version=version,
        sha256="0" * 64,
        cluster="demo",
        owner="tester",
        objects=(),
        is_whole=False,
    )


def applied(kube: Kube, version: str, **more: Any) -> addons_apply.Applied:
    return addons_apply.apply_all(kube, record(version), operator(version), clock=Clock(), **more)


def test_a_cluster_gets_what_its_fabric_needs_once(kube: Kube, server: Server) -> None:
    said = converged(kube, server, fabric="efa", volumes=[BUCKET])
    assert [line.split()[0] for line in said] == ["nvidia-device-plugin", "efa-device-plugin", "volumes"]
    mine = {
        "app.kubernetes.io/managed-by": "cloudrec",
        "cloudrec/cluster": "demo",
        "cloudrec/owner": "tester",
    }
    found = kube.list("DaemonSet", namespace="kube-system", labels=mine)
    assert {each["metadata"]["name"] for each in found} == DAEMON_SETS
    claim = kube.get("PersistentVolumeClaim", "cloudrec-bucket", namespace=server.namespace)
    assert claim is not None
    assert claim["spec"]["volumeName"] == "cloudrec-demo-bucket"
    again = converged(kube, server, fabric="efa", volumes=[BUCKET])
    assert [line.rpartition(" is ")[2] for line in again] == ["up to date"] * 3


def test_what_is_installed_is_listed_with_its_version(kube: Kube, server: Server) -> None:
    converged(kube, server, fabric="efa")
    found = {each.name: each for each in addons.listed(kube)}
    assert set(found) == {"nvidia-device-plugin", "efa-device-plugin"}
    plugin = found["nvidia-device-plugin"]
    assert plugin.version == plugin.newest == "v0.20.0"
    assert plugin.is_ours
    assert plugin.is_whole


def test_a_plugin_that_is_there_already_is_left_alone(kube: Kube, server: Server) -> None:
    node(kube, "gpu-1", {"nvidia.com/gpu": "8"})
    said = converged(kube, server, fabric="tcp")
    (line,) = said
    assert line.startswith(
        "nvidia-device-plugin is there already (nvidia.com/gpu can be allocated on nodes: 1)"
    )
    assert kube.list("DaemonSet") == []
    (seen,) = addons.listed(kube)
    assert (seen.name, seen.is_ours) == ("nvidia-device-plugin", False)


def test_what_a_newer_version_does_not_have_goes_with_the_older_one(kube: Kube) -> None:
    applied(kube, "1")
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is not None
    second = applied(kube, "2")
    assert [each.name for each in second.removed] == ["settings-1"]
    assert kube.get("ConfigMap", "settings-1", namespace="operator") is None
    widget = kube.get("example.org/v1/Widget", "its-own", namespace="operator")
    assert widget is not None
    assert widget["spec"] == {"version": "2"}


def test_what_somebody_else_has_made_is_not_taken_over_without_force(kube: Kube) -> None:
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operator"}})
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings-1", "namespace": "operator"},
        "data": {"version": "theirs"},
    }
    kube.create(theirs)
    with pytest.raises(PreflightError, match="is there already, and was not made by cloudrec"):
        applied(kube, "1")
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None
    applied(kube, "1", force=True)
    found = kube.get("ConfigMap", "settings-1", namespace="operator")
    assert found is not None
    assert found["data"] == {"version": "1"}
    assert addons.remove_all(kube, "demo", report=lambda _: None) == []
    assert kube.get("Namespace", "operator") is not None  # which was there before


def test_an_addon_goes_whole_and_takes_nothing_else_with_it(kube: Kube) -> None:
    applied(kube, "1")
    kube.patch(
        "ConfigMap",
        "settings-1",
        {"metadata": {"labels": {"cloudrec/cluster": "another"}}},
        namespace="operator",
    )
    addons.remove(kube, "operator", report=lambda _: None)
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None
    assert inventory.read_all(kube) == []


def test_an_operator_whose_objects_are_there_stays_unless_it_is_forced(kube: Kube) -> None:
    applied(kube, "1")
    kube.create(
        {
            "apiVersion": "example.org/v1",
            "kind": "Widget",
            "metadata": {"name": "users", "namespace": "operator"},
            "spec": {},
        }
    )
    with pytest.raises(PreflightError, match="with it would go 1 of Widget"):
        addons.remove(kube, "operator", report=lambda _: None)
    assert addons.remove_all(kube, "demo", report=lambda _: None) == ["operator"]
    assert addons.remove_all(kube, "another", report=lambda _: None) == []
    addons.remove(kube, "operator", report=lambda _: None, force=True)
    assert kube.get("CustomResourceDefinition", "widgets.example.org") is None


def test_an_installation_that_broke_off_is_told_and_taken_up(kube: Kube, server: Server) -> None:
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "NOT A NAME", "namespace": "operator"},
    }
    with pytest.raises(UsageError):
        addons_apply.apply_all(kube, record("1"), [*operator("1"), broken], clock=Clock())
    (left,) = inventory.read_all(kube)
    assert not left.is_whole
    assert {each.name for each in left.objects} >= {"settings-1", "widgets.example.org"}
    (finding,) = [each for each in health.check(kube, server.target()) if each.check == "add-on operator"]
    assert not finding.ok
    applied(kube, "1")
    assert [each.is_whole for each in inventory.read_all(kube)] == [True]


def test_a_record_that_is_damaged_is_told_with_its_remedy(kube: Kube) -> None:
    inventory.write(kube, dataclasses.replace(record("1"), is_whole=True))
    kube.patch(
        "ConfigMap", "cloudrec-addon-operator", {"data": {"objects": "nonsense"}}, namespace="kube-system"
    )
    with pytest.raises(PreflightError, match="is damaged") as refused:
        inventory.read_all(kube)
    assert "kubectl" in str(refused.value.remedy)


def test_a_cluster_without_networks_of_pods_own_is_told_before_anything_is_made(
    kube: Kube, server: Server
) -> None:
    cards = [{"interface": "eth1", "network": "n1", "subnetwork": "s1"}]
    with pytest.raises(PreflightError, match=r"gke-networks needs the kind networking\.gke\.io/v1/Network"):
        converged(kube, server, fabric="tcpx", networks=cards, built_in=["nvidia-device-plugin"])
    assert inventory.read_all(kube) == []


def test_an_unknown_addon_is_refused_with_the_nearest(kube: Kube, server: Server) -> None:
    with pytest.raises(UsageError, match="no add-on 'kubray'") as refused:
        addons.install(kube, "kubray", server.target(), cluster="c", owner="o", report=print)
    assert "kuberay" in str(refused.value.remedy)
