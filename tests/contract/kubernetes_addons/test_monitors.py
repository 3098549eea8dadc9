"""PodMonitors name the pods that serve metrics, where their kind is served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec.kubernetes.manifests import run_objects
from cloudrec.kubernetes.namespaces import prepare
from cloudrec.transport import profile_of
from tests.contract.kubernetes_addons.support import Server
from tests.unit.kubernetes_manifests.support_matrix import workload

OSS, AZURE = "monitoring.coreos.com/v1/PodMonitor", "azmonitoring.coreos.com/v1/PodMonitor"
GOOGLE = "monitoring.googleapis.com/v1/PodMonitoring"
GPUS = {"resources": {"nvidia.com/gpu": "8"}}


def define(kube: Kube, server: Server, *operators: str) -> None:
    """Define the kinds of operators, and wait until the API server serves them."""
    server.control(crds=list(operators))
    kinds = {"prometheus": OSS, "azure-monitor": AZURE, "google-prometheus": GOOGLE}
    deadline = time.monotonic() + 20
    while not all(kube.kinds.has(kinds[each]) for each in operators):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def served(kube: Kube, server: Server, expected: Sequence[str] = (), **of: Any) -> list[str]:
    said: list[str] = []
    manage.install_metrics(
        kube, server.target(**of), expected, cluster="demo", owner="tester", report=said.append
    )
    return said


def monitors(kube: Kube, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in kube.list(kind)}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    assert all(each["operator"] == "In" for each in expressions)
    return wanted.items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def test_a_cluster_without_an_operator_gets_no_monitors(kube: Kube, server: Server) -> None:
    assert served(kube, server) == []
    assert manage.listed(kube) == []


def test_a_prometheus_operator_finds_runs_and_exporters(kube: Kube, server: Server) -> None:
    define(kube, server, "prometheus")
    assert [line.split()[0] for line in served(kube, server)] == ["pod-monitors"]
    found = monitors(kube, OSS)
    assert set(found) == {"cloudrec-runs", "cloudrec-exporters"}
    assert served(kube, server) == ["pod-monitors 1 is up to date"]
    # The pods that cloudrec makes are those that the monitors select, at a port that these pods have.
    target = server.target()
    objects = run_objects("torchrun", workload(metrics_port=9409), target, profile_of("tcp", ""))
    (job,) = [each for each in objects if each["kind"] == "Job"]
    pod = job["spec"]["template"]
    runs = found["cloudrec-runs"]
    assert runs["namespaceSelector"] == {"matchNames": [target.namespace]}
    assert selects(runs["selector"], pod["metadata"]["labels"])
    assert not selects(runs["selector"], {"app": "of-others"})
    (endpoint,) = runs["podMetricsEndpoints"]
    (container,) = pod["spec"]["containers"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]
    manage.install(kube, "gpu-metrics", target, cluster="demo", owner="tester", report=print, wait_s=0)
    daemon = kube.get("DaemonSet", "cloudrec-gpu-metrics", namespace="kube-system")
    assert daemon is not None
    template, exporters = daemon["spec"]["template"], found["cloudrec-exporters"]
    assert exporters["namespaceSelector"] == {"matchNames": ["kube-system"]}
    assert selects(exporters["selector"], template["metadata"]["labels"])
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    assert [each["port"] for each in exporters["podMetricsEndpoints"]] == ports


def test_both_operators_get_monitors_and_a_removal_takes_them(kube: Kube, server: Server) -> None:
    define(kube, server, "prometheus", "azure-monitor")
    served(kube, server, ["gpu-metrics", "azure-pod-monitors"], **GPUS)
    assert {each.name for each in manage.listed(kube)} == {
        "gpu-metrics",
        "pod-monitors",
        "azure-pod-monitors",
    }
    assert monitors(kube, AZURE) == monitors(kube, OSS)
    manage.remove_all(kube, "demo", report=print)
    assert monitors(kube, AZURE) == monitors(kube, OSS) == {}


def test_gkes_service_finds_the_runs_where_it_was_asked_for(kube: Kube, server: Server) -> None:
    define(kube, server, "google-prometheus")
    assert served(kube, server) == []  # GKE serves the kind in clusters that did not ask for the service
    assert [line.split()[0] for line in served(kube, server, ["gke-pod-monitorings"])] == [
        "gke-pod-monitorings"
    ]
    target = server.target()
    objects = run_objects("torchrun", workload(metrics_port=9409), target, profile_of("tcp", ""))
    (job,) = [each for each in objects if each["kind"] == "Job"]
    pod = job["spec"]["template"]
    (found,) = kube.list(GOOGLE)
    assert found["metadata"]["namespace"] == target.namespace  # it selects pods of its namespace alone
    assert selects(found["spec"]["selector"], pod["metadata"]["labels"])
    (endpoint,) = found["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    manage.remove_all(kube, "demo", report=print)
    assert kube.list(GOOGLE) == []


def test_a_service_whose_kinds_are_not_there_yet_is_reported_with_the_remedy(
    kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage, "_SERVED_S", 0.1)
    (line,) = served(kube, server, ["gpu-metrics", "azure-pod-monitors"])  # no GPUs: no exporter
    assert line.startswith("azure-pod-monitors is not installed")
    assert "cluster.metrics managed" in line


def test_monitors_of_others_are_left_alone(kube: Kube, server: Server) -> None:
    define(kube, server, "prometheus")
    target = server.target()
    version, _, kind = OSS.rpartition("/")
    theirs = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "cloudrec-runs", "namespace": target.namespace},
        "spec": {"selector": {}, "podMetricsEndpoints": [{"port": "web"}]},
    }
    prepare(kube, target, "demo", "tester")
    kube.apply(theirs)
    (line,) = served(kube, server)
    assert "was not made by cloudrec" in line
    assert monitors(kube, OSS)["cloudrec-runs"]["podMetricsEndpoints"] == [{"port": "web"}]


def test_the_stand_in_refuses_a_monitor_without_endpoints(kube: Kube, server: Server) -> None:
    define(kube, server, "prometheus")
    version, _, kind = OSS.rpartition("/")
    prepare(kube, server.target(), "demo", "tester")
    bad = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "bad", "namespace": server.namespace},
        "spec": {"selector": {}},
    }
    with pytest.raises((KubeError, PreflightError), match="podMetricsEndpoints"):
        kube.apply(bad)
