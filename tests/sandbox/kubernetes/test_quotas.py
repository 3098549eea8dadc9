"""Quotas of cores and memory; verdicts and words as a Kubernetes 1.36 API server gave them."""

from __future__ import annotations

from typing import Any

from tests.sandbox.kubernetes.support import Kubernetes

PODS = "/api/v1/namespaces/default/pods"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def quota(kube: Kubernetes, name: str, hard: dict[str, str], *scopes: str) -> None:
    spec: dict[str, Any] = {"hard": hard, **({"scopes": list(scopes)} if scopes else {})}
    kube.done("POST", QUOTAS, {"kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})


def pod(name: str, **resources: Any) -> dict[str, Any]:
    containers = [{"name": each, "image": "x", "resources": resources} for each in ("c1", "c2")]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": containers}}


def words(kube: Kubernetes, body: dict[str, Any]) -> str:
    refused = kube.refused("POST", PODS, body)
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    return str(refused["message"])


def test_a_pod_must_state_what_a_quota_counts(kube: Kubernetes) -> None:
    quota(kube, "a", {"requests.cpu": "4", "limits.cpu": "4", "memory": "8Gi"})
    gpu = {"nvidia.com/gpu": "1"}
    for body in (pod("p"), pod("p", requests=gpu, limits=gpu)):
        assert words(kube, body) == (
            'pods "p" is forbidden: failed quota: a: must specify limits.cpu for: c1,c2; '
            "memory for: c1,c2; requests.cpu for: c1,c2"
        )
    limited = pod("p", requests={"cpu": "1"}, limits={"memory": "1Gi"})
    assert words(kube, limited).endswith("must specify limits.cpu for: c1,c2")


def test_pods_must_fit_into_a_quota_together(kube: Kubernetes) -> None:
    quota(kube, "a", {"requests.cpu": "4", "limits.cpu": "4", "memory": "8Gi"})
    one = {"cpu": "1", "memory": "1Gi"}
    kube.done("POST", PODS, pod("first", requests=one, limits=one))
    more = {"cpu": "1500m", "memory": "1Gi"}
    assert words(kube, pod("p", requests=more, limits=more)) == (
        'pods "p" is forbidden: exceeded quota: a, requested: limits.cpu=3,requests.cpu=3, '
        "used: limits.cpu=2,requests.cpu=2, limited: limits.cpu=4,requests.cpu=4"
    )


def test_a_pod_with_devices_alone_is_best_effort(kube: Kubernetes) -> None:
    quota(kube, "none", {"pods": "0"}, "BestEffort")
    gpu = {"nvidia.com/gpu": "1"}
    assert "exceeded quota: none" in words(kube, pod("p", requests=gpu, limits=gpu))
    made = kube.done("POST", PODS, pod("p", requests={"cpu": "100m"}))
    assert made["status"]["qosClass"] == "Burstable"
