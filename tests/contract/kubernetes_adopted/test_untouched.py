"""After `down`, a cluster of others is as it was before `up`: every object of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.addons import install, uninstall
from cloudrec.app.guard import hold_to_end
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Site
from tests.contract.kubernetes_adopted.test_adopted import given, kube, obj, pods, trained

IMAGE = "registry.example/cloudrec@sha256:" + "0" * 64
_GPU = {"name": "gpu", "count": 2, "hardware": {"gpus": 8}, "labels": {"nvidia.com/gpu.present": "true"}}
_TRANSIENT = {"Event", "Lease"}  # written by kubelets and controllers all the time


def listing(client: Kube) -> dict[str, Any]:
    """Every object, without what controllers write into it while it lives."""
    found = {}
    for kind in client.kinds.listable():
        if kind.name in _TRANSIENT:
            continue
        for each in client.list(f"{kind.version}/{kind.name}"):
            given = dict(each["metadata"])
            for name in ("resourceVersion", "managedFields", "generation"):
                given.pop(name, None)
            parts = {key: each[key] for key in ("spec", "data", "rules", "subjects") if key in each}
            found[f"{kind.version}/{kind.name} {given.get('namespace', '')}/{given['name']}"] = (given, parts)
    return found


def _inhabited(client: Kube) -> None:
    """Namespaces, quotas, accounts, pods, limits, labels and a cordon of others."""
    client.create(obj("Namespace", "teamml", labels={"team": "ml"}))
    client.create(obj("Namespace", "elsewhere"))
    client.create(obj("ServiceAccount", "ml", namespace="teamml"))
    client.create(obj("ResourceQuota", "ml", namespace="teamml", spec={"hard": {"requests.cpu": "900"}}))
    limit = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}
    client.create(obj("LimitRange", "ml", namespace="elsewhere", spec=limit))
    client.create(obj("ConfigMap", "theirs", namespace="teamml", data={"a": "1"}))
    client.create(obj("DaemonSet", "agent", namespace="kube-system", spec=_daemon()))
    client.patch("Node", "gpu-1", {"spec": {"unschedulable": True}, "metadata": {"labels": {"team": "ml"}}})


def _daemon() -> dict[str, Any]:
    template = pods("agent")
    del template["spec"]["restartPolicy"]
    return {"selector": {"matchLabels": {"app": "agent"}}, "template": template}


@pytest.mark.parametrize("place", ["created", "teamml"])
def test_up_addons_guard_train_and_down_leave_every_object_of_others_as_it_was(
    site: Site, tmp_path: Path, bucket: str, place: str
) -> None:
    site.cloud.control(processes=False, nodes=[_GPU])
    with kube(site) as client:
        _inhabited(client)
        before = listing(client)
        given(site, storage=bucket)
        if place == "teamml":
            given(site, namespace="teamml", service_account="ml")
        site.cluster = site.cluster.model_copy(update={"nodes": 1})
        site.up()
        install(site.application, site.cluster, "nvidia-device-plugin")
        ending = site.cluster.model_copy(update={"expires": "2099-11-21T11:00:00Z"})
        access = site.application.provider("kubernetes").access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        hold_to_end(site.application, ending, client, access.target, image=IMAGE)
        trained(site, tmp_path)
        during = listing(client)
        assert during.keys() > before.keys()
        assert {name: during[name] for name in before} == before
        uninstall(site.application, site.cluster, "nvidia-device-plugin")
        site.down()
        assert listing(client) == before
