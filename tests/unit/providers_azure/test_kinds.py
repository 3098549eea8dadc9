"""The order in which kinds are deleted without a graph: complete and acyclic."""

from __future__ import annotations

from graphlib import TopologicalSorter

from cloudrec.engine.graph import Graph
from cloudrec.providers.azure.provider import AzureProvider
from tests.unit.providers_azure.support import layout

KINDS = AzureProvider.kinds


def test_every_needed_kind_is_known() -> None:
    assert {need for needs in KINDS.values() for need in needs} <= KINDS.keys()


def test_dependents_are_deleted_first() -> None:
    order = list(TopologicalSorter(KINDS).static_order())[::-1]
    for above, below in [
        ("gpu-nodes", "proximity-placement-group"),
        ("gpu-nodes", "cluster"),
        ("federated-credential", "cluster"),
        ("cluster", "leftovers"),
        ("cluster", "node-resource-group"),
        ("cluster", "role-assignment"),
        ("stray", "subnet"),
        ("node-resource-group", "subnet"),
        ("leftovers", "subnet"),
        ("leftovers", "virtual-network"),
        ("virtual-network", "resource-group"),
        ("lustre", "gpu-nodes"),
    ]:
        assert order.index(above) < order.index(below), (above, below)


def test_a_cluster_is_one_graph_of_known_kinds() -> None:
    of = layout(zones=("1", "2", "3"), nodes=2, capacity="spot-first", lustre_tib=8)
    graph = Graph.of(resource for part in AzureProvider.parts for resource in part.resources(of))
    assert {resource.kind for resource in graph.resources.values()} <= KINDS.keys()
    for resource in graph.resources.values():
        needed = {need.partition("/")[0] for need in resource.needs}
        if resource.kind == "role-assignment":
            needed -= {"cluster"}  # deleted with its scope
        assert needed <= _all_below(resource.kind) | {resource.kind}, resource.key


def _all_below(kind: str) -> set[str]:
    return set(KINDS[kind]).union(*(_all_below(below) for below in KINDS[kind])) if KINDS[kind] else set()
