"""Machines that a cloud takes back, and nodes that are lost in its cluster, are lost on both sides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.aws.support import Aws
from tests.sandbox.aws.support import stand_in as aws_stand_in
from tests.sandbox.aws.support_eks import active_cluster, create_nodegroup, ground
from tests.sandbox.kubernetes.support_nodes import Cluster, conditions, pod, running, wait

PLACE = {"zone": "us-east-1a", "instance_type": "m5.large", "capacity": "spot", "gap_seconds": 3600}
TRAINS = ("sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.05; done")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Aws, Cluster]]:
    """A node group of two spot instances, whose cluster the Kubernetes stand-in serves."""
    with aws_stand_in() as aws, running() as cluster:
        aws.control(speed=0.001)
        base = ground(aws)
        active_cluster(aws, base)
        create_nodegroup(aws, base, capacityType="SPOT")
        aws.advance(300)
        aws.control(kubernetes=cluster.announcement)
        wait(lambda: len(names(cluster)) == 2, what="two nodes", timeout_s=20)
        yield aws, cluster


def names(cluster: Cluster) -> set[str]:
    """The nodes that are machines of the cloud."""
    found = {node["metadata"]["name"] for node in cluster.get("/api/v1/nodes")["items"]}
    return {name for name in found if name.startswith("ip-")}


def ended(aws: Aws) -> int:
    """How many instances have ended."""
    found: list[dict[str, Any]] = aws.client("ec2").describe_instances()["Reservations"]
    return sum(each["State"]["Name"] == "terminated" for row in found for each in row["Instances"])


def test_a_preempted_instance_is_an_evicted_node_and_comes_back_with_the_capacity(
    pair: tuple[Aws, Cluster],
) -> None:
    aws, cluster = pair
    cluster.control(node_timing={"grace_s": 8})
    cluster.apply(pod("p", *TRAINS))
    wait(lambda: cluster.pod("p")["status"]["phase"] == "Running", what="the pod runs", timeout_s=20)
    aws.control(capacity_trace=[{**PLACE, "data": [0, 1]}])
    aws.advance(125)  # the notice and the end are past before the cluster has seen either
    wait(lambda: cluster.pod("p")["status"]["phase"] == "Failed", what="the pod's own end", timeout_s=10)
    found = cluster.pod("p")
    assert conditions(found)["DisruptionTarget"] == "TerminationByKubelet"
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 75
    wait(lambda: not names(cluster), what="no node", timeout_s=20)
    cluster.control(advance_s=600)
    aws.advance(1800)
    assert not names(cluster)  # neither replaces what the cloud cannot have
    aws.advance(1800)
    wait(lambda: len(names(cluster)) == 2, what="two new nodes", timeout_s=20)
    assert ended(aws) == 2


@pytest.mark.parametrize("how", ["spot", "vanish"])
def test_a_node_evicted_in_the_cluster_ends_its_instance(pair: tuple[Aws, Cluster], how: str) -> None:
    aws, cluster = pair
    aws.control(capacity_trace=[], capacity={"m5.large/us-east-1a/spot": -1})  # also once one is given back
    cluster.control(node_timing={"grace_s": 1, "replacement_s": 1})
    count = ended(aws)
    cluster.control(evict={"node": min(names(cluster)), "how": how})
    wait(lambda: ended(aws) == count + 1, what="the instance's end", timeout_s=20)
    for _ in range(2):
        cluster.control(advance_s=100)  # a silent node, then its object
        time.sleep(0.5)
    aws.advance(200)
    time.sleep(1)
    assert len(names(cluster)) == 1
    aws.control(capacity={"m5.large/us-east-1a/spot": None})
    aws.advance(100)
    wait(lambda: len(names(cluster)) == 2, what="the replacement", timeout_s=20)
