"""The order in which kinds are deleted without a graph: complete and acyclic."""

from __future__ import annotations

from graphlib import TopologicalSorter

from cloudrec.providers.aws.provider import AwsProvider

KINDS = AwsProvider.kinds


def test_every_needed_kind_is_known() -> None:
    assert {need for needs in KINDS.values() for need in needs} <= KINDS.keys()


def test_dependents_are_deleted_first() -> None:
    order = list(TopologicalSorter(KINDS).static_order())[::-1]
    for above, below in [
        ("gpu-nodes", "addon"),
        ("gpu-nodes", "placement-group"),
        ("cpu-nodes", "cluster"),
        ("addon", "cluster"),
        ("launch-template", "cluster"),
        ("cluster", "leftovers"),
        ("cluster", "load-balancer"),
        ("load-balancer", "target-group"),
        ("load-balancer", "stray-security-group"),
        ("guardduty-endpoint", "stray-security-group"),
        ("guardduty-endpoint", "subnet"),
        ("network-interface", "subnet"),
        ("leftovers", "subnet"),
        ("leftovers", "internet-gateway"),
        ("lustre", "gpu-nodes"),
    ]:
        assert order.index(above) < order.index(below), (above, below)
