"""An adopted cluster: objects of others are never changed, and another cluster is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import MisreadAnswerError, PreflightError, ResourcesRemainError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.spec.load import load
from tests.conformance.support_clouds import Site, until

_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.org"},
    "spec": {
        "group": "example.org",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}
LABELS = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "conformance"}


def kube(site: Site) -> Kube:
    target = ClusterTarget(
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


def test_a_namespace_and_a_service_account_of_others_are_used_and_kept(site: Site) -> None:
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


def test_objects_of_another_cloudrec_cluster_are_used_and_kept(site: Site, tmp_path: Path) -> None:
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


def test_a_namespace_with_objects_of_others_is_kept_and_down_reports_the_reason(site: Site) -> None:
    site.up()
    space = "cloudrec-conformance"
    with kube(site) as client:
        before = client.get("Namespace", space)
        client.create(obj("ResourceQuota", "theirs", namespace=space, spec={"hard": {"pods": "4"}}))
        for _ in range(2):  # repeated calls keep it
            with pytest.raises(
                ResourcesRemainError, match=f"namespace {space} is kept, .*ResourceQuota theirs"
            ) as caught:
                site.down()
            assert caught.value.exit_code == 5
            assert client.get("Namespace", space) == before
        client.delete("ResourceQuota", "theirs", namespace=space)
        site.down()
        assert client.get("Namespace", space) is None
    assert site.cloud.state() == []


def test_a_namespace_whose_cloudrec_annotation_was_removed_is_kept(site: Site) -> None:
    site.up()
    with kube(site) as client:
        mark = {"metadata": {"annotations": {"cloudrec/tags": None}}}
        client.patch("Namespace", "cloudrec-conformance", mark)
        site.down()
        assert client.get("Namespace", "cloudrec-conformance") is not None


TENANTS: list[Any] = [
    obj("LimitRange", "theirs", spec={"limits": [{"type": "Pod", "max": {"cpu": "4"}}]}),
    obj("PersistentVolumeClaim", "theirs", spec=_CLAIM),
    {**obj("NetworkPolicy", "theirs", spec={"podSelector": {}}), "apiVersion": "networking.k8s.io/v1"},
    {**obj("Lease", "theirs"), "apiVersion": "coordination.k8s.io/v1"},
    {**obj("Widget", "theirs"), "apiVersion": "example.org/v1"},
    obj("Secret", "theirs"),
    obj("ServiceAccount", "theirs"),
]


@pytest.mark.parametrize("tenant", TENANTS, ids=lambda tenant: str(tenant["kind"]))
def test_an_object_of_others_of_any_kind_keeps_the_namespace(site: Site, tenant: dict[str, Any]) -> None:
    site.up()
    with kube(site) as client:
        if tenant["kind"] == "Widget":
            client.create(_WIDGETS)
            until(lambda: client.kinds.has("example.org/v1/Widget"), "the kind is served")
        space = "cloudrec-conformance"
        client.create({**tenant, "metadata": {**tenant["metadata"], "namespace": space}})
        with pytest.raises(ResourcesRemainError, match=f"{tenant['kind']} theirs"):
            site.down()
        assert client.get("Namespace", space) is not None


def test_objects_that_a_distribution_adds_to_every_namespace_do_not_keep_it(site: Site) -> None:
    site.up()
    with kube(site) as client:
        space = "cloudrec-conformance"
        for name in ("openshift-service-ca.crt", "istio-ca-root-cert"):
            client.create(obj("ConfigMap", name, namespace=space))
        client.create(obj("ServiceAccount", "builder", namespace=space))
        for account in ("builder", "default", "cloudrec"):
            secret = obj(
                "Secret", f"{account}-dockercfg-x7k2p", namespace=space, type="kubernetes.io/dockercfg"
            )
            secret["metadata"]["annotations"] = {"kubernetes.io/service-account.name": account}
            client.create({**secret, "stringData": {".dockercfg": "{}"}})
        site.down()
        assert client.get("Namespace", space) is None
    assert site.cloud.state() == []


def test_a_namespace_without_delete_or_list_permission_is_kept_and_named(site: Site) -> None:
    site.up()
    for action in ("delete namespaces", "list limitranges"):
        denied = {"kind": "error", "code": "Forbidden", "message": "not for you", "status": 403}
        site.cloud.control(faults=[{**denied, "service": "core", "action": action, "times": 1000}])
        with pytest.raises(ResourcesRemainError, match=r"namespace/conformance .*not for you"):
            site.down()
    site.cloud.control(faults=[])
    site.down()
    assert site.cloud.state() == []


@pytest.mark.parametrize("level", ["", "baseline", "privileged"])
def test_a_run_does_not_change_a_namespace_or_service_account_of_others(
    site: Site, tmp_path: Path, bucket: str, level: str
) -> None:
    site.cloud.control(processes=False)
    theirs = {"team": "ml"} | ({"pod-security.kubernetes.io/enforce": level} if level else {})
    with kube(site) as client:
        client.create(obj("Namespace", "teamml", labels=theirs))
        client.create(obj("ServiceAccount", "ml", namespace="teamml"))
        before = client.get("Namespace", "teamml"), client.get("ServiceAccount", "ml", namespace="teamml")
        given(site, namespace="teamml", service_account="ml", storage=bucket)
        site.up()
        trained(site, tmp_path)
        assert client.get("Job", "r", namespace="teamml") is not None
        after = client.get("Namespace", "teamml"), client.get("ServiceAccount", "ml", namespace="teamml")
        assert after == before
        site.up()
        site.down()
        assert client.get("Job", "r", namespace="teamml") is None
        after = client.get("Namespace", "teamml"), client.get("ServiceAccount", "ml", namespace="teamml")
        assert after == before


def test_labels_of_an_earlier_version_do_not_make_a_namespace_of_others_deletable(site: Site) -> None:
    with kube(site) as client:
        client.create(obj("Namespace", "teamml", labels={**LABELS, "cloudrec/owner": "ann"}))
        client.create(obj("ServiceAccount", "ml", labels=LABELS, namespace="teamml"))
        given(site, namespace="teamml", service_account="ml")
        site.up()
        site.down()
        assert client.get("Namespace", "teamml") is not None
        assert client.list("ServiceAccount", namespace="teamml", fields="metadata.name=ml")


def test_a_restored_copy_of_a_cloudrec_namespace_is_kept(site: Site) -> None:
    site.up()
    with kube(site) as client:
        ours = client.get("Namespace", "cloudrec-conformance")
        assert ours is not None
        client.delete("Namespace", "cloudrec-conformance")
        until(lambda: client.get("Namespace", "cloudrec-conformance") is None, "it is gone")
        copy = {key: ours["metadata"][key] for key in ("name", "labels", "annotations")}
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": copy})
        site.down()
        assert client.get("Namespace", "cloudrec-conformance") is not None


def test_a_namespace_with_too_strict_pod_security_is_refused_with_the_reason(
    site: Site, tmp_path: Path
) -> None:
    site.cloud.control(processes=False)
    with kube(site) as client:
        level = {"pod-security.kubernetes.io/enforce": "baseline"}
        client.create(obj("Namespace", "teamml", labels=level))
        given(site, namespace="teamml", fabric="infiniband")
        site.up()
        with pytest.raises(PreflightError, match=r"'baseline'.*'infiniband' need 'privileged'") as caught:
            trained(site, tmp_path)
        assert "kubectl label namespace teamml" in (caught.value.remedy or "")


def test_the_created_namespace_has_the_pod_security_level_of_the_fabric(site: Site) -> None:
    def level() -> str:
        space = client.get("Namespace", "cloudrec-conformance")
        assert space is not None
        return str(space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"])

    with kube(site) as client:
        site.up()
        assert level() == "restricted"
        given(site, fabric="infiniband")
        site.up()
        assert level() == "privileged"
    site.down()


def trained(site: Site, folder: Path) -> None:
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("cluster", "provider"): ("PROVIDER", "kubernetes"),
        ("train", "name"): ("--name", "r"),
        ("train", "image"): ("--image", "registry.example/cloudrec@sha256:" + "0" * 64),
        ("train", "settings", "probe"): ("--set", False),
        ("trainer", "dataset_path"): ("--dataset", "s3://bucket/data"),
    }
    loaded = load(None, environment={}, flags=flags, folder=folder)
    app.train(site.application, loaded, (), decide=lambda _launch: True)


def test_down_deletes_runs_and_addons_and_nothing_of_others(site: Site) -> None:
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


def test_a_second_up_keeps_runs_addons_and_the_guard(site: Site) -> None:
    site.up()
    with kube(site) as client:
        run = {"parallelism": 1, "completions": 1, "suspend": True, "template": pods("run")}
        labels = {**LABELS, "cloudrec/run": "r", "cloudrec/owner": "tester"}
        client.create(obj("Job", "r", labels=labels, namespace="cloudrec-conformance", spec=run))
        for kind in ("ConfigMap", "ServiceAccount"):
            part = {**LABELS, "cloudrec/addon": "kueue"}
            client.create(obj(kind, "operator", labels=part, namespace="cloudrec-conformance"))
        client.create(obj("Namespace", "operator", labels={**LABELS, "cloudrec/addon": "kueue"}))
        plugin = {"selector": {"matchLabels": {"app": "p"}}, "template": _forever("p")}
        client.create(obj("DaemonSet", "plugin", labels=LABELS, namespace="kube-system", spec=plugin))
        before = site.cloud.state()
        plan = app.up(site.application, site.cluster, decide=lambda _plan: True)
        assert not plan.changes
        assert set(before) <= set(site.cloud.state())
    site.down()
    assert site.cloud.state() == []


def _ports() -> dict[str, Any]:
    return {"clusterIP": "None", "selector": {"app": "r"}, "ports": [{"port": 29400}]}


def _forever(name: str) -> dict[str, Any]:
    template = pods(name)
    del template["spec"]["restartPolicy"]
    return template


def test_another_cluster_under_the_same_context_is_refused_until_confirmed(
    site: Site, tmp_path: Path
) -> None:
    site.up()
    access = site.application.provider("kubernetes").access(site.cluster)
    assert isinstance(access, KubernetesAccess)
    old = access.target
    assert old.identity
    site.cloud.control(identity="made-again")
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


def test_access_describes_the_existing_nodes(site: Site) -> None:
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
    assert isinstance(access, KubernetesAccess)
    target = access.target
    assert (access.nodes, access.gpus_per_node, access.storage) == (2, 1, "s3://bucket/prefix")
    assert (target.fabric, target.instance_type, target.notices) == ("tcp", "g2", "gcp")
    assert [each["key"] for each in target.tolerations] == ["nvidia.com/gpu"]
    assert Path(target.kubeconfig).stat().st_mode & 0o777 == 0o600
    with Kube.connect(target) as client:
        assert client.get("ServiceAccount", target.service_account, namespace=target.namespace) is not None
    site.down()


def test_missing_permissions_and_missing_objects_are_reported_before_any_change(site: Site) -> None:
    site.cluster = site.cluster.model_copy(update={"nodes": 5})
    with pytest.raises(PreflightError, match="2 ready; needed: 5"):
        site.up()
    given(site, node_selector={"no": "such"})
    with pytest.raises(PreflightError, match="0 ready"):
        site.up()
    assert site.cloud.state() == []


def test_an_answer_without_a_field_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.up()
    real = Kube.get

    def get(self: Kube, kind: str, name: str, **where: Any) -> dict[str, Any] | None:
        found = real(self, kind, name, **where)
        if found is None or kind != "ServiceAccount":
            return found
        return {
            **found,
            "metadata": {key: value for key, value in found["metadata"].items() if key != "uid"},
        }

    provider = site.application.provider("kubernetes")
    with monkeypatch.context() as patched:
        patched.setattr(Kube, "get", get)
        for work in (provider.access, provider.resources, provider.preflight):
            with pytest.raises(MisreadAnswerError, match="an answer cannot be read: KeyError: 'uid'"):
                work(site.cluster)
    site.down()
