"""What `up` shows before it asks: about eight lines of 80 characters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cloudrec.cli.plans import plan_summary
from cloudrec.engine.graph import Properties, Resource
from cloudrec.engine.plan import Action, Plan, PlanStep


@dataclass(frozen=True, kw_only=True)
class Nodes(Properties):
    """What a group of GPU nodes is asked for."""

    zone: str
    capacity: str
    nodes: int = 4


def node(name: str, zone: str, capacity: str, usd: float | None) -> Resource[Nodes]:
    return Resource(
        kind="gpu-nodes",
        name=f"{name}-{zone}-{capacity}",
        properties=Nodes(zone=zone, capacity=capacity),
        hourly_usd=usd,
        node_type=name,
        gpus=8,
        priced="" if usd is None else f"{capacity} price of 2026-11-23, {zone}, a list",
    )


def plan(*choices: Resource[Nodes], others: int = 40) -> Plan:
    choice: Resource[Properties] = Resource(
        kind="gpu-nodes", name="t", candidates=choices, hourly_usd=choices[0].hourly_usd
    )
    free = [
        Action(step=PlanStep.CREATE, key=f"rule/{number}", reason="does not exist", hourly_usd=0.0)
        for number in range(others)
    ]
    gpu = Action(
        step=PlanStep.CREATE,
        key="gpu-nodes/t",
        reason="does not exist",
        hourly_usd=choices[0].hourly_usd,
        resource=choice,
        candidate=choices[0],
    )
    cluster = Action(step=PlanStep.KEEP, key="cluster/t", reason="as asked for", hourly_usd=0.5)
    return Plan(
        cluster="t",
        actions=[*free, gpu, cluster],
        region="us-east-1",
        expires="2026-11-24T06:00:00Z",
        left_s=8 * 3600,
        minutes=(14, 30),
    )


def test_a_plan_is_summed_up_in_nine_lines() -> None:
    choices = [
        node("p4d.24xlarge", zone, capacity, usd)
        for capacity, usd in (("spot", 30.0), ("on-demand", 87.83))
        for zone in ("us-east-1a", "us-east-1b")
    ]
    assert plan_summary(plan(*choices)).splitlines() == [
        "cluster t: 41 to create, 1 to keep (--verbose lists each)",
        "  nodes    4 x p4d.24xlarge (32 GPUs); spot, then on-demand",
        "  where    us-east-1, zones tried: a, b",
        "  price    spot price of 2026-11-23, us-east-1a, a list",
        "  now      $30.50/h",
        "  at most  $88.33/h, with the most expensive choice",
        "  idle     $0.50/h ($365 a month) without GPU nodes",
        "  ends     2026-11-24T06:00:00Z, in 8h00m; costs at most $706.64 until then",
        "  ready    in 14 to 30 minutes, as a rule",
    ]


def test_an_unknown_price_and_a_missing_end_are_named() -> None:
    found = replace(plan(node("p5e.48xlarge", "us-east-1a", "on-demand", None)), expires=None, minutes=None)
    assert plan_summary(found).splitlines() == [
        "cluster t: 41 to create, 1 to keep (--verbose lists each)",
        "  nodes    4 x p5e.48xlarge (32 GPUs); on-demand",
        "  where    us-east-1, zones tried: a",
        "  now      $0.50/h + unknown: gpu-nodes (p5e.48xlarge)",
        "  idle     $0.50/h ($365 a month) without GPU nodes",
        "  ends     never: there is no --ttl and no --budget",
    ]
    ends = replace(found, expires="2026-11-24T06:00:00Z")
    assert "in 8h00m; at an unknown cost" in plan_summary(ends)


@pytest.mark.parametrize("count", [1, 3, 12])
def test_no_line_is_longer_than_80_characters(count: int) -> None:
    choices = [
        node(f"Standard_ND96isr_H{number}00_v5", f"us-east-1{letter}", "spot", 98.32)
        for number in range(1, count + 1)
        for letter in "abcdef"
    ]
    lines = plan_summary(plan(*choices)).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 7 + count


def test_a_plan_without_nodes_or_changes_has_three_lines() -> None:
    keep = Action(step=PlanStep.KEEP, key="folder/t", reason="as asked for", hourly_usd=0.0)
    assert plan_summary(Plan(cluster="t", actions=[keep])).splitlines() == [
        "cluster t: 1 to keep (--verbose lists each)",
        "  now      $0.00/h",
        "  ends     never: there is no --ttl and no --budget",
    ]
