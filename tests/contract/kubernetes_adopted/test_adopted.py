"""An adopted cluster stays its owner's: what is not ours is never touched, and another cluster is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import PreflightError
from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target
from tests.conformance.support_clouds import Site

LABELS = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "conformance"}


def kube(site: Site) -> Kube:
    target = Target(
        kubeconfig=site.cloud.env["KUBECONFIG"], context="cloudrec-sandbox", namespace="", service_account=""
    )
    return Kube.connect(target)


def obj(
    kind: str, name: str, *, labels: dict[str, str] | None = None, namespace: str = "", **rest: Any
) -> Any:
    where = {"namespace": namespace} if namespace else {}
    version = {"DaemonSet": "apps/v1", "Job": "batch/v1"}.get(kind, "v1")
    metadata = {"name": name, "labels": labels or {}, **where}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def pods(name: str) -> dict[str, Any]:
    container = {"name": "a", "image": "registry.example/cloudrec:1"}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def given(site: Site, **settings: Any) -> None:
    changed = {**site.cluster.settings, **settings}
    site.cluster = site.cluster.model_copy(update={"settings": changed})


def test_a_namespace_and_an_account_of_others_are_used_and_stay(site: Site) -> None:
    with kube(site) as client:
        client.create(obj("Namespace", "theirs"))
        client.create(obj("ServiceAccount", "irsa", namespace="theirs"))
        client.create(obj("ConfigMap", "precious", namespace="theirs"))
        before = client.get("Namespace", "theirs"), client.get("ServiceAccount", "irsa", namespace="theirs")
        given(site, namespace="theirs", service_account="irsa")
        site.up()
        assert [view.state for view in app.clusters(site.application)] == ["READY"]
        site.down()
        assert client.get("Namespace", "theirs") == before[0]
        assert client.get("ServiceAccount", "irsa", namespace="theirs") == before[1]
        assert client.get("ConfigMap", "precious", namespace="theirs") is not None
        assert client.list("ConfigMap", labels=LABELS) == []


def test_what_another_cluster_of_ours_made_is_used_and_stays(site: Site, tmp_path: Path) -> None:
    other = Site(site.cloud, tmp_path / "other", "other")
    for each in (other, site):
        given(each, namespace="shared")
        each.up()
    site.up()
    with kube(site) as client:
        site.down()
        assert client.get("Namespace", "shared") is not None
        assert [view.state for view in app.clusters(other.application)] == ["READY"]
        other.down()
        assert client.get("Namespace", "shared") is None


def test_a_namespace_of_ours_that_others_moved_into_stays_without_our_mark(site: Site) -> None:
    site.up()
    with kube(site) as client:
        client.create(obj("ConfigMap", "moved-in", namespace="cloudrec-conformance"))
        site.down()
        space = client.get("Namespace", "cloudrec-conformance")
        assert space is not None
        assert "cloudrec/cluster" not in space["metadata"].get("labels", {})
        assert client.get("ConfigMap", "moved-in", namespace="cloudrec-conformance") is not None


def test_down_takes_runs_and_add_ons_along_and_nothing_of_others(site: Site) -> None:
    site.up()
    with kube(site) as client:
        run = {"parallelism": 1, "completions": 1, "suspend": True, "template": pods("run")}
        labels = {**LABELS, "cloudrec/run": "r", "cloudrec/owner": "tester"}
        client.create(obj("Job", "r", labels=labels, namespace="cloudrec-conformance", spec=run))
        client.create(obj("Service", "r", labels=labels, namespace="cloudrec-conformance", spec=_ports()))
        plugin = {"selector": {"matchLabels": {"app": "p"}}, "template": _forever("p")}
        client.create(obj("DaemonSet", "plugin", labels=LABELS, namespace="kube-system", spec=plugin))
        client.create(obj("DaemonSet", "theirs", namespace="kube-system", spec=plugin))
        other = {**LABELS, "cloudrec/cluster": "another"}
        client.create(obj("ConfigMap", "of-another", labels=other, namespace="default"))
        site.down()
        assert client.get("Namespace", "cloudrec-conformance") is None
        names = [each["metadata"]["name"] for each in client.list("DaemonSet", namespace="kube-system")]
        assert names == ["theirs"]
        assert client.get("ConfigMap", "of-another", namespace="default") is not None


def _ports() -> dict[str, Any]:
    return {"clusterIP": "None", "selector": {"app": "r"}, "ports": [{"port": 29400}]}


def _forever(name: str) -> dict[str, Any]:
    template = pods(name)
    del template["spec"]["restartPolicy"]
    return template


def test_another_cluster_under_the_same_context_is_refused_until_it_is_confirmed(
    site: Site, tmp_path: Path
) -> None:
    site.up()
    access = site.application.provider("kubernetes").access(site.cluster)
    old = Target.of(access.details)
    assert old.identity
    site.cloud.control(identity="made-anew")
    for wrong in (site.up, site.down, lambda: site.application.provider("kubernetes").access(site.cluster)):
        with pytest.raises(PreflightError, match="another cluster than the one"):
            wrong()
    (view,) = app.clusters(site.application)
    assert (view.state, "another cluster" in view.problem) == ("UNREACHABLE", True)
    with kube(site) as client:
        given(site, identity=client.identity())
    site.up()
    site.down()
    assert site.cloud.state() == []
    assert not (site.home.clusters / "conformance").exists()
    assert tmp_path.exists()


def test_access_tells_what_the_nodes_that_are_there_can_do(site: Site) -> None:
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    pool = {
        "name": "gpu",
        "count": 2,
        "labels": {
            "cloud.google.com/gke-accelerator": "nvidia-l4",
            "node.kubernetes.io/instance-type": "g2",
        },
        "taints": [gpu],
        "hardware": {"gpus": 1},
        "provider_id": "gce://p/z/",
    }
    site.cloud.control(nodes=[{"name": "cpu", "count": 1}, pool])
    site.up()
    access = site.application.provider("kubernetes").access(site.cluster)
    target = Target.of(access.details)
    assert (access.nodes, access.gpus_per_node, access.storage) == (2, 1, "s3://bucket/prefix")
    assert (target.fabric, target.instance_type, target.notices) == ("tcp", "g2", "gcp")
    assert [each["key"] for each in target.tolerations] == ["nvidia.com/gpu"]
    assert Path(target.kubeconfig).stat().st_mode & 0o777 == 0o600
    with Kube.connect(target) as client:
        assert client.get("ServiceAccount", target.service_account, namespace=target.namespace) is not None
    site.down()


def test_what_is_not_allowed_and_what_is_not_there_is_said_before_anything_is_made(site: Site) -> None:
    site.cluster = site.cluster.model_copy(update={"nodes": 5})
    with pytest.raises(PreflightError, match="2 ready; needed: 5"):
        site.up()
    given(site, node_selector={"no": "such"})
    with pytest.raises(PreflightError, match="0 ready"):
        site.up()
    assert site.cloud.state() == []
