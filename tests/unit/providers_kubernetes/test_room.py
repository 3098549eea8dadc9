"""What the daemons of the training nodes leave to a run."""

from __future__ import annotations

from typing import Any

from cloudrec.providers.kubernetes.nodes.room import requests, room_of
from tests.unit.providers_kubernetes.test_nodes import node


def container(cpu: str = "", memory: str = "", **rest: Any) -> dict[str, Any]:
    given = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": given}, **rest}


def daemon(cpu: str = "", memory: str = "", **spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [container(cpu, memory)], **spec}}}}


def test_daemons_are_subtracted_from_the_smallest_node() -> None:
    large = node("large", has={"cpu": "192", "memory": "2000Gi"})
    small = node("small", has={"cpu": "96", "memory": "1000Gi"})
    room = room_of([large, small], [daemon("500m", "1Gi"), daemon("250m", "512Mi")])
    assert room == (95.25, 998.5)
    thin = node("thin", has={"cpu": "100", "memory": "500Gi"})  # more cores, less memory
    assert room_of([small, thin], []) == (96.0, 500.0)


def test_a_daemon_counts_only_on_nodes_where_it_has_a_pod() -> None:
    taint = ("nvidia.com/gpu", "present", "NoSchedule")
    gpu = node("g", labels={"gpu": "yes"}, taints=(taint,), has={"cpu": "10", "memory": "10Gi"})
    cpu = node("c", has={"cpu": "10", "memory": "10Gi"})
    everywhere = [{"operator": "Exists"}]
    assert room_of([gpu], [daemon("1")]).cores == 10
    assert room_of([gpu], [daemon("1", tolerations=everywhere)]).cores == 9
    named = [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]
    assert room_of([gpu], [daemon("1", tolerations=named)]).cores == 9
    assert room_of([cpu], [daemon("1", nodeSelector={"gpu": "yes"})]).cores == 10
    for operator, values, left in (("In", ["no"], 10), ("Exists", [], 9), ("DoesNotExist", [], 10)):
        expression = {"key": "gpu", "operator": operator, "values": values}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        made = daemon("1", tolerations=everywhere, affinity=affinity)
        assert room_of([gpu], [made]).cores == left, operator


def test_a_pod_requests_the_most_that_it_needs_at_one_time() -> None:
    pod = {
        "initContainers": [
            container("3"),
            container("500m", "1Gi", restartPolicy="Always"),
            container("4", "1Gi"),
        ],
        "containers": [container("1", "2Gi"), container("1")],
        "overhead": {"memory": "1Gi"},
    }
    assert requests(pod) == {"cpu": 4.5, "memory": 4 * 1024.0**3}
    limited = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}
    assert requests(limited)["cpu"] == 2


def test_a_node_that_daemons_fill_has_no_room() -> None:
    assert room_of([node("a")], [daemon("8", "64Gi")]) == (0.0, 0.0)
