"""A cluster that a cloud's stand-in makes is served by the Kubernetes stand-in, as long as it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target
from tests.conformance.support_clouds import Cloud, Site, stand_in, until

# Azure's is the quickest; `make soak` goes over the others.
CLOUDS = [pytest.param(name, marks=pytest.mark.soak) for name in ("aws", "gcp")] + [pytest.param("azure")]


def gpu_nodes(kube: Kube) -> list[dict[str, Any]]:
    return kube.list("Node", labels="cloudrec.io/nodes=gpu")


def settled(cloud: Cloud, true: Callable[[], bool], what: str) -> None:
    until(lambda: cloud.settings() and true(), what)


@pytest.mark.parametrize("name", CLOUDS)
def test_its_nodes_come_and_go_and_its_tokens_are_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in(name) as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the command that gives tokens
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, tmp_path)
        site.up()
        provider = site.application.provider(name)
        target = Target.of(provider.access(site.cluster).details)
        with Kube.connect(target) as kube:
            settled(cloud, lambda: len(gpu_nodes(kube)) == 2, "two GPU nodes")
            identity, node = kube.identity(), gpu_nodes(kube)[0]
            assert target.node_selector.items() <= node["metadata"]["labels"].items()
            assert node["spec"]["taints"][0]["key"] == "nvidia.com/gpu"
            registry = provider.registry(site.cluster)
            assert registry.repository.startswith(registry.address)
            assert registry.password.get_secret_value() not in repr(registry)
            assert len(provider.halt(site.cluster).pools) == 1
            settled(cloud, lambda: not gpu_nodes(kube), "no GPU node")
            site.down()
            settled(cloud, lambda: kube.identity() == identity, "the server goes on")
        assert cloud.state() == []
