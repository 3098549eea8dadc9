"""The cores and the memory that a run requests on an adopted cluster, and the quotas of its namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Site, until
from tests.contract.kubernetes_adopted.test_adopted import given, kube, obj, pods, trained

# Machines of two kinds, so that no instance type is the pool's, and no catalogue knows it.
_GPU = {"hardware": {"gpus": 8}, "labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}
_MIXED: list[dict[str, Any]] = [
    {**_GPU, "name": "large", "count": 1, "capacity": {"cpu": "192", "memory": "2000Gi"}},
    {**_GPU, "name": "small", "count": 1, "capacity": {"cpu": "96", "memory": "1000Gi"}},
]


def _daemon() -> dict[str, Any]:
    template = pods("agent")
    del template["spec"]["restartPolicy"]
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2", "memory": "10Gi"}}
    return {"selector": {"matchLabels": {"app": "agent"}}, "template": template}


def _pods(client: Kube, namespace: str) -> list[dict[str, Any]]:
    return client.list("Pod", namespace=namespace, labels="cloudrec/run=r")


def test_trainers_request_what_daemons_leave_of_the_smallest_node(
    site: Site, tmp_path: Path, bucket: str
) -> None:
    site.cloud.control(processes=False, nodes=_MIXED)
    with kube(site) as client:
        client.create(obj("DaemonSet", "agent", namespace="kube-system", spec=_daemon()))
        given(site, storage=bucket)
        site.up()
        access = site.application.provider("kubernetes").access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        target = access.target
        assert (target.instance_type, target.cpus, target.memory_gib) == ("", 94, 990)
        trained(site, tmp_path)
        job = client.get("Job", "r", namespace=target.namespace)
        assert job is not None
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == {"cpu": "79", "memory": "841Gi", "nvidia.com/gpu": "8"}
        until(lambda: len(_pods(client, target.namespace)) == 2, "both pods are made")
        assert {each["status"]["qosClass"] for each in _pods(client, target.namespace)} == {"Burstable"}


def test_pods_are_admitted_by_a_quota_of_the_namespace(site: Site, tmp_path: Path, bucket: str) -> None:
    site.cloud.control(processes=False, nodes=_MIXED)
    hard = {"requests.cpu": "400", "limits.cpu": "400", "memory": "4000Gi", "limits.memory": "4000Gi"}
    with kube(site) as client:
        client.create(obj("Namespace", "teamml"))
        client.create(obj("ServiceAccount", "ml", namespace="teamml"))
        client.create(obj("ResourceQuota", "team", namespace="teamml", spec={"hard": hard}))
        given(site, namespace="teamml", service_account="ml", storage=bucket)
        site.up()
        trained(site, tmp_path)
        until(lambda: len(_pods(client, "teamml")) == 2, "both pods are admitted")


def test_a_quota_without_room_for_the_run_is_refused_with_what_would_fit(
    site: Site, tmp_path: Path, bucket: str
) -> None:
    site.cloud.control(processes=False, nodes=_MIXED)
    with kube(site) as client:
        client.create(obj("Namespace", "teamml"))
        client.create(
            obj("ResourceQuota", "team", namespace="teamml", spec={"hard": {"requests.cpu": "100"}})
        )
        given(site, namespace="teamml", storage=bucket)
        site.up()
        words = r"quota team .* leaves 100 of requests\.cpu .* need 162"
        with pytest.raises(PreflightError, match=words) as caught:
            trained(site, tmp_path)
        assert caught.value.remedy == (
            "--set train.settings.cpus=50, or ask who administers the namespace for a larger quota"
        )
        assert client.list("Job", namespace="teamml") == []
