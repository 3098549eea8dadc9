"""The Kubernetes stand-in serves the API of each cluster of a cloud's stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.image.records import PushedImage, note_pushed
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import CanScaleToZero, HasRegistry
from cloudrec.spec.models import ClusterSpec
from tests.conformance.support_clouds import Cloud, Site, stand_in, until

# Azure's stand-in is the fastest; `make soak` covers the others.
CLOUDS = [pytest.param(name, marks=pytest.mark.soak) for name in ("aws", "gcp")] + [pytest.param("azure")]


def gpu_nodes(kube: Kube) -> list[dict[str, Any]]:
    return kube.list("Node", labels="cloudrec.io/nodes=gpu")


def settled(cloud: Cloud, true: Callable[[], bool], what: str) -> None:
    until(lambda: cloud.settings() and true(), what)


def is_admitted(kube: Kube) -> bool:
    """Whether the cluster's API accepts the user, whose role or access entry counts some time later."""
    try:
        return bool(kube.identity())
    except DeniedError:
        return False


@pytest.mark.parametrize("name", CLOUDS)
def test_nodes_follow_the_cloud_and_its_tokens_are_accepted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in(name) as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, tmp_path)
        site.up()
        provider = site.application.provider(name)
        access = provider.access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        assert isinstance(provider, HasRegistry)
        target = access.target
        with Kube.connect(target) as kube:
            settled(cloud, lambda: is_admitted(kube), "access")
            settled(cloud, lambda: len(gpu_nodes(kube)) == 2, "two GPU nodes")
            node = gpu_nodes(kube)[0]
            assert target.node_selector.items() <= node["metadata"]["labels"].items()
            assert node["spec"]["taints"][0]["key"] == "nvidia.com/gpu"
            registry = provider.registry(site.cluster)
            assert registry.repository.startswith(registry.address)
            assert registry.password.get_secret_value() not in repr(registry)
            assert isinstance(provider, CanScaleToZero)
            assert len(provider.halt(site.cluster).pools) == 1
            settled(cloud, lambda: not gpu_nodes(kube), "no GPU node")
            site.down()
            settled(cloud, lambda: not is_admitted(kube), "no access to a removed cluster")
        assert cloud.state() == []


def test_a_cluster_is_ready_once_its_addons_and_its_guard_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in("azure") as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, tmp_path)
        asked = {"ttl": "8h", "metrics": "managed"}
        site.cluster = ClusterSpec.model_validate({**site.cluster.model_dump(mode="json"), **asked})
        site.up()  # its add-ons are skipped; a server with a new cluster starts empty
        assert shown(site) == ("READY", {})
        del cloud.env["CLOUDREC_CLUSTER_ADDONS"]
        refused = {"kind": "error", "status": 403, "code": "Forbidden", "message": "not yours", "times": 1000}
        server.control(processes=False, faults=[{**refused, "action": "(create|patch) daemonsets"}])
        site.up()
        state, missing = shown(site)
        assert (state, list(missing)) == (
            "NOT READY",
            ["add-ons"],
        )  # the guard needs no image that was pushed
        assert "not yours" in missing["add-ons"]
        server.control(faults=[])
        cluster = app.choose(site.application, provider_name="azure", cluster_name=site.cluster.title)
        app.install(site.application, cluster, None)
        assert shown(site) == ("READY", {})
        provider = site.application.provider("azure")
        assert isinstance(provider, HasRegistry)
        note_pushed(site.home, image_in(provider.registry(cluster).repository))
        app.install(site.application, cluster, None)
        assert shown(site) == ("READY", {})
        site.up()
        assert shown(site) == ("READY", {})
        there = {each.name for each in app.installed(site.application, cluster)}
        assert {"gpu-metrics", "azure-pod-monitors"} <= there  # the agent's kinds come with it
        assert "pod-monitors" not in there
        app.uninstall(site.application, cluster, "nvidia-device-plugin")
        assert "nvidia-device-plugin is not installed" in shown(site)[1]["add-ons"]
        site.down()
        assert cloud.state() == []


@pytest.mark.soak  # Google's stand-in is slow
def test_gkes_service_for_metrics_gets_what_names_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in("gcp") as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        del cloud.env["CLOUDREC_CLUSTER_ADDONS"]
        for variable, value in cloud.env.items():
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, tmp_path)
        site.cluster = ClusterSpec.model_validate(
            {**site.cluster.model_dump(mode="json"), "metrics": "managed"}
        )
        site.up()
        there = {each.name for each in app.installed(site.application, site.cluster)}
        assert "gke-pod-monitorings" in there
        assert not there & {"gpu-metrics", "pod-monitors"}  # GKE collects the metrics of GPUs itself
        site.down()
        assert cloud.state() == []


def shown(site: Site) -> tuple[str, dict[str, str]]:
    """A cluster's state, and its missing parts with the reasons."""
    (view,) = app.clusters(site.application)
    return view.state, {each.what: each.reason for each in view.missing}


def image_in(repository: str) -> PushedImage:
    return PushedImage(
        repository=repository,
        digest=f"sha256:{'0' * 64}",
        tag="t",
        fabric="ib",
        device="cuda",
        version="0",
        cluster="conformance",
        pushed="2026-11-22T00:00:00Z",
    )
