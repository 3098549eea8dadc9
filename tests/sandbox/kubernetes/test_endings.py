"""Deletion: finalizers, owners, namespaces and evictions."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from tests.sandbox.kubernetes.support import (
    APPLY,
    MERGE,
    Kubernetes,
    config_map,
    job,
    pod,
    refusal,
    status_of,
    until,
)

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def is_gone(kube: Kubernetes, path: str) -> bool:
    return kube.raw("GET", path)[0] == 404


def owned(name: str, owner: dict[str, Any], kind: str = "ConfigMap", version: str = "v1") -> dict[str, Any]:
    metadata = owner["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    answer = [{**reference, "blockOwnerDeletion": True}]
    return {**config_map(name), "metadata": {"name": name, "ownerReferences": answer}}


def test_a_finalizer_blocks_deletion(kube: Kubernetes) -> None:
    body = {**config_map("one"), "metadata": {"name": "one", "finalizers": ["example.com/hold"]}}
    kube.done("POST", MAPS, body)
    answer = kube.done("DELETE", f"{MAPS}/one")
    assert answer["metadata"]["deletionTimestamp"]
    again = kube.refused("POST", MAPS, config_map("one"))
    assert again["message"].startswith("object is being deleted")
    kube.done("PATCH", f"{MAPS}/one", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert is_gone(kube, f"{MAPS}/one")


def test_owned_objects_are_deleted_with_their_owner(kube: Kubernetes) -> None:
    owner = kube.done("POST", MAPS, config_map("owner"))
    kube.done("POST", MAPS, owned("part", owner))
    kube.done("DELETE", f"{MAPS}/owner")
    until(lambda: is_gone(kube, f"{MAPS}/part"))


def test_foreground_deletion_deletes_the_owner_last(kube: Kubernetes) -> None:
    owner = kube.done("POST", MAPS, config_map("owner"))
    part = owned("part", owner)
    part["metadata"]["finalizers"] = ["example.com/hold"]
    kube.done("POST", MAPS, part)
    answer = kube.done("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    until(lambda: "deletionTimestamp" in kube.done("GET", f"{MAPS}/part")["metadata"])
    assert not is_gone(kube, f"{MAPS}/owner")
    kube.done("PATCH", f"{MAPS}/part", {"metadata": {"finalizers": None}}, content_type=MERGE)
    until(lambda: is_gone(kube, f"{MAPS}/owner"))


def test_deleting_a_job_orphans_its_pods_by_default(kube: Kubernetes) -> None:
    for policy in (None, "Background"):
        owner = kube.done("POST", JOBS, job("one"))
        kube.done("POST", MAPS, owned("part", owner, "Job", "batch/v1"))
        kube.done("DELETE", f"{JOBS}/one", {"propagationPolicy": policy} if policy else None)
        until(lambda: is_gone(kube, f"{JOBS}/one"))
        if policy is None:
            assert "ownerReferences" not in kube.done("GET", f"{MAPS}/part")["metadata"]
            kube.done("DELETE", f"{MAPS}/part")
    until(lambda: is_gone(kube, f"{MAPS}/part"))


def test_an_object_with_a_missing_owner_is_deleted(kube: Kubernetes) -> None:
    owner = {"metadata": {"name": "never", "uid": "00000000-0000-4000-8000-000000000000"}}
    kube.done("POST", MAPS, owned("part", owner))
    until(lambda: is_gone(kube, f"{MAPS}/part"))


def test_a_delete_with_preconditions_affects_only_that_object(kube: Kubernetes) -> None:
    kube.done("POST", MAPS, config_map("one"))
    answer = kube.refused("DELETE", f"{MAPS}/one", {"preconditions": {"uid": "another"}})
    assert (answer["code"], answer["reason"]) == (409, "Conflict")


def test_a_terminating_namespace_deletes_its_objects_and_accepts_no_new_ones(kube: Kubernetes) -> None:
    kube.done("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    maps = "/api/v1/namespaces/team/configmaps"
    body = {**config_map("one"), "metadata": {"name": "one", "finalizers": ["example.com/hold"]}}
    kube.done("POST", maps, body)
    answer = kube.done("DELETE", "/api/v1/namespaces/team")
    assert answer["status"]["phase"] == "Terminating"
    error = kube.refused("POST", maps, config_map("two"))
    assert (error["code"], error["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    until(lambda: "deletionTimestamp" in kube.done("GET", f"{maps}/one")["metadata"])
    kube.done("PATCH", f"{maps}/one", {"metadata": {"finalizers": None}}, content_type=MERGE)
    until(lambda: is_gone(kube, "/api/v1/namespaces/team"))


def test_a_collection_is_deleted_by_selector(kube: Kubernetes) -> None:
    for name in ("a", "b"):
        kube.done("POST", MAPS, {**config_map(name), "metadata": {"name": name, "labels": {"is": name}}})
    kube.core.delete_collection_namespaced_config_map("default", label_selector="is=a")
    assert (is_gone(kube, f"{MAPS}/a"), is_gone(kube, f"{MAPS}/b")) == (True, False)


def running(kube: Kubernetes, name: str) -> None:
    """A pod that says it runs, on no node."""
    kube.done("POST", PODS, {**pod(name), "metadata": {"name": name, "labels": {"app": "x"}}})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"status": {"phase": "Running", "conditions": ready}}
    kube.done("PATCH", f"{PODS}/{name}/status", status, content_type=MERGE)


def test_a_disruption_budget_blocks_evictions(kube: Kubernetes) -> None:
    for name in ("a", "b"):
        running(kube, name)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    kube.done("POST", budgets, {"metadata": {"name": "one"}, "spec": spec})
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name="a"))
    kube.core.create_namespaced_pod_eviction("a", "default", body)
    assert is_gone(kube, f"{PODS}/a")
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name="b"))
    error = refusal(kube.core.create_namespaced_pod_eviction, "b", "default", body)
    assert (error.status, error.headers["Retry-After"]) == (429, "10")
    assert status_of(error)["details"]["causes"][0]["reason"] == "DisruptionBudget"


def widget(schema: dict[str, Any]) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


SIZES = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def test_a_custom_resource_definition_adds_a_kind_with_its_schema_until_deleted(kube: Kubernetes) -> None:
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}
    assert kube.refused("POST", widgets, {**body, "spec": {"size": 1}})["code"] == 404
    kube.done("PATCH", f"{CRDS}/widgets.example.com", widget(SIZES), content_type=APPLY, fieldManager="one")
    until(lambda: kube.raw("GET", widgets)[0] == 200)
    answer = kube.refused("POST", widgets, {**body, "spec": {"size": 0}})
    assert (answer["code"], answer["details"]["causes"][0]["field"]) == (422, "spec.size")
    assert kube.refused("POST", widgets, {**body, "spec": {}})["code"] == 422
    assert kube.refused("POST", widgets, {**body, "spec": {"size": 1, "colour": "green"}})["code"] == 422
    made = kube.done("POST", widgets, {**body, "spec": {"size": 1}})
    assert made["spec"] == {"size": 1, "colour": "red"}
    without = {**made, "metadata": {"name": "one"}}
    assert kube.refused("PUT", f"{widgets}/one", without)["code"] == 422
    kube.done("DELETE", f"{CRDS}/widgets.example.com")
    until(lambda: is_gone(kube, f"{CRDS}/widgets.example.com"))
    assert is_gone(kube, widgets)


def test_operators_install_their_kinds(kube: Kubernetes) -> None:
    kube.control(crds=["pytorchjob", "gke-networking"])
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    until(lambda: kube.raw("GET", path)[0] == 200)
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": pod("one", containers=[{"name": "main"}])}}}
    answer = kube.refused("POST", path, {"metadata": {"name": "one"}, "spec": spec})
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    assert "must have at least one container with name pytorch" in answer["message"]
    kube.done("POST", path, {"metadata": {"name": "one"}, "spec": {"anything": {"goes": True}}})
    networks = kube.done("GET", "/apis/networking.gke.io/v1/networks")
    assert (networks["kind"], networks["items"]) == ("NetworkList", [])


def test_a_jobset_with_pod_names_over_the_limit_or_an_unknown_reason_is_denied(kube: Kubernetes) -> None:
    kube.control(crds=["jobset"])
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    until(lambda: kube.raw("GET", path)[0] == 200)
    job = {"name": "node", "replicas": 1, "template": {"spec": {"completions": 11, "template": pod("one")}}}
    rules = [{"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["OutOfMemory"]}]
    spec = {"replicatedJobs": [job], "failurePolicy": {"rules": rules}}
    answer = kube.refused("POST", path, {"metadata": {"name": "n" * 48}, "spec": spec})
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    assert "pod names generated for this JobSet will exceed 63" in answer["message"]
    assert "invalid job failure reason 'OutOfMemory'" in answer["message"]
    kube.done("POST", path, {"metadata": {"name": "n" * 47}, "spec": {"replicatedJobs": [job]}})
