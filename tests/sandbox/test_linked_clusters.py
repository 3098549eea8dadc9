"""Several clusters of a cloud, each with its own Kubernetes API server."""

from __future__ import annotations

from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from cloudrec_sandbox.core.client import RefusedError
from tests.sandbox.aws.support import Aws
from tests.sandbox.aws.support import stand_in as aws_stand_in
from tests.sandbox.aws.support_eks import active_cluster, create_nodegroup, ground
from tests.sandbox.kubernetes.support_nodes import Cluster, running, wait


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def names(cluster: Cluster, kind: str = "configmaps") -> set[str]:
    found = cluster.get(f"/api/v1/namespaces/default/{kind}")["items"]
    return {each["metadata"]["name"] for each in found}


def uid(cluster: Cluster) -> str:
    return str(cluster.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])


def address(aws: Aws, name: str) -> str:
    return str(aws.client("eks").describe_cluster(name=name)["cluster"]["endpoint"])


def test_siblings_are_other_clusters_with_the_same_authority_and_variables() -> None:
    with running() as first:
        first.control(environment={"NAME": "value"})
        (announced,) = first.control(siblings=1)["siblings"]
        second = Cluster(announced)
        assert announced["certificate_authority"] == first.announcement["certificate_authority"]
        assert uid(first) != uid(second)
        second.apply(config_map("theirs"))
        assert "theirs" in names(second)
        assert "theirs" not in names(first)
        assert second.control()["environment"] == {"NAME": "value"}
        assert len(first.control(siblings=1)["siblings"]) == 1  # it has so many already
        with pytest.raises(RefusedError, match="ask the first one"):
            second.control(siblings=1)


def test_each_cluster_of_a_cloud_has_its_own_server_and_a_free_one_is_used_again() -> None:
    with aws_stand_in() as aws, running() as first:
        aws.control(speed=0.001, kubernetes=first.announcement)
        base = ground(aws)
        active_cluster(aws, base, "one")
        assert address(aws, "one") == first.announcement["endpoints"]["kubernetes"]
        create_nodegroup(aws, base)
        aws.advance(300)
        wait(lambda: len(first.get("/api/v1/nodes")["items"]) == 2, what="the nodes of one", timeout_s=20)
        active_cluster(aws, base, "two")
        (announced,) = first.control()["siblings"]
        second = Cluster(announced)
        wait(lambda: second.control()["tokens"], what="it serves the cluster", timeout_s=20)
        assert address(aws, "two") == announced["endpoints"]["kubernetes"]
        assert second.get("/api/v1/nodes")["items"] == []
        second.apply(config_map("theirs"))
        first.apply(config_map("ours"))
        before = uid(second)
        aws.client("eks").delete_cluster(name="two")
        aws.advance(900)
        wait(lambda: "theirs" not in names(second), what="its objects are gone", timeout_s=20)
        assert "ours" in names(first)
        active_cluster(aws, base, "three")
        assert address(aws, "three") == announced["endpoints"]["kubernetes"]
        wait(lambda: uid(second) != before, what="another cluster", timeout_s=20)
        assert len(first.control()["siblings"]) == 1


def test_the_api_server_of_one_cluster_can_fail() -> None:
    with aws_stand_in() as aws, running() as first:
        aws.control(speed=0.001, kubernetes=first.announcement)
        base = ground(aws)
        active_cluster(aws, base, "one")
        active_cluster(aws, base, "two")
        second = Cluster(first.control()["siblings"][0])
        wait(lambda: second.control()["tokens"], what="it serves the cluster", timeout_s=20)
        served = aws.control()["kubernetes"]["clusters"]
        (key,) = (each for each, server in served.items() if server == address(aws, "two"))
        silent = [{"kind": "drop", "times": 1000}]
        aws.control(cluster_faults={key: silent})
        assert aws.control()["cluster_faults"] == {key: silent}
        with pytest.raises(HTTPError, match="closed connection without response"):
            second.get("/api/v1/nodes")
        assert first.get("/api/v1/nodes")["items"] == []
        aws.control(cluster_faults={key: []})
        assert second.get("/api/v1/nodes")["items"] == []
        assert aws.control()["cluster_faults"] == {}
        with pytest.raises(RefusedError, match="cluster_faults: no cluster three"):
            aws.control(cluster_faults={"three": []})
