"""The selection of training nodes: ready, selected, and with GPUs if any node has them."""

from __future__ import annotations

from typing import Any

from cloudrec.providers.kubernetes.nodes.nodes import pool_of, quantity
from cloudrec.providers.kubernetes.settings import KubernetesSettings


def node(
    name: str,
    *,
    ready: str = "True",
    labels: dict[str, str] | None = None,
    taints: tuple[tuple[str, str, str], ...] = (),
    provider: str = "",
    cordoned: bool = False,
    has: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "unschedulable": cordoned,
            "providerID": provider,
            "taints": [{"key": k, "value": v, "effect": e} for k, v, e in taints],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {
                "cpu": "7800m",
                "memory": "32Gi",
                **(has or {}),
            },
        },
    }


GPUS = {"nvidia.com/gpu": "8"}
EFA = {**GPUS, "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "10256Mi"}


def test_without_gpus_every_ready_node_is_used() -> None:
    pool = pool_of([node("a"), node("b"), node("c", ready="False")], KubernetesSettings())
    assert (pool.names, pool.gpus, pool.cores, pool.fabric) == (("a", "b"), 0, 7, "none")
    assert dict(pool.resources) == {}
    assert pool.left_out == {"c": "is not ready"}


def test_with_gpus_only_gpu_nodes_are_used() -> None:
    gpu = ("nvidia.com/gpu", "present", "NoSchedule")
    nodes = [node("cpu"), node("x", taints=(gpu,), has=GPUS), node("y", cordoned=True, has=GPUS)]
    pool = pool_of(nodes, KubernetesSettings())
    assert (pool.names, pool.gpus, pool.fabric) == (("x",), 8, "tcp")
    assert dict(pool.resources) == {"nvidia.com/gpu": "8"}
    assert pool.tolerations == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    ]
    assert pool.left_out == {"cpu": "has no GPU", "y": "is cordoned"}


def test_the_fabric_follows_from_the_adapters_that_every_node_has() -> None:
    efa = pool_of([node("a", has=EFA), node("b", has=EFA)], KubernetesSettings())
    assert (efa.fabric, efa.resources["vpc.amazonaws.com/efa"]) == ("efa", "4")
    assert efa.resources["hugepages-2Mi"] == "5120Mi"
    assert pool_of([node("a", has=EFA), node("b", has=GPUS)], KubernetesSettings()).fabric == "tcp"
    cards = pool_of([node("a", has={**GPUS, "rdma/ib": "8"})], KubernetesSettings())
    assert (cards.fabric, cards.capabilities) == ("infiniband", ("IPC_LOCK",))


def test_control_plane_nodes_and_terminating_nodes_are_excluded() -> None:
    control = ("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    going = ("node.kubernetes.io/unreachable", "", "NoExecute")
    pool = pool_of([node("m", taints=(control,)), node("g", taints=(going,))], KubernetesSettings())
    assert pool.names == ()
    assert set(pool.left_out) == {"m", "g"}


def test_the_selector_filters_nodes_and_the_provider_id_selects_the_notices() -> None:
    labels = {"team": "ads", "node.kubernetes.io/instance-type": "p4d.24xlarge"}
    nodes = [node("a", labels=labels, provider="aws:///z/i-1"), node("b", provider="aws:///z/i-2")]
    pool = pool_of(nodes, KubernetesSettings(node_selector={"team": "ads"}))
    assert (pool.names, pool.instance_type, pool.notices, pool.notice_s) == (
        ("a",),
        "p4d.24xlarge",
        "aws",
        120,
    )


def test_kubernetes_quantities_are_parsed() -> None:
    told = {"500m": 0.5, "16Gi": 16 * 1024**3, "2": 2, "1e3": 1000, "5k": 5000, "none": 0}
    assert {text: quantity(text) for text in told} == told
