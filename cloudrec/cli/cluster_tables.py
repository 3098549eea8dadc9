"""Clusters as tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cloudrec.cli.output import duration, fitted, listed
from cloudrec.cli.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app import ClusterView, KeeperView

_HEADERS = (
    "CLUSTER",
    "STATE",
    "NODES",
    "GPUS",
    "TYPE",
    "$/H",
    "SPENT",
    "LEFT",
    "EXPIRES",
    "REGION",
    "PROVIDER",
    "AGE",
    "OWNER",
)
# The same by importance.
_FIRST = (
    "CLUSTER",
    "STATE",
    "$/H",
    "NODES",
    "GPUS",
    "SPENT",
    "LEFT",
    "REGION",
    "EXPIRES",
    "TYPE",
    "PROVIDER",
    "AGE",
    "OWNER",
)


def clusters_table(clusters: Sequence[ClusterView], *, one: bool = False) -> str:
    """Format clusters as a table, with their problems and keepers below it.

    Args:
        clusters: the clusters.
        one: whether one cluster was asked for, whose figures are then all shown.
    """
    if not clusters:
        return "no cluster is up (cloudrec up PROVIDER)"
    rows = [_row(cluster) for cluster in clusters]
    if one and len(rows) == 1:
        table = listed(_HEADERS, rows[0])
    else:
        table = fitted(_HEADERS, rows, first=_FIRST, more="-o wide, or `cloudrec status CLUSTER`")
    problems = [f"ALARM: {c.name}: {c.alarm}" for c in clusters if c.alarm]
    problems += [f"{c.name}: {one_line(c.problem)}" for c in clusters if c.problem]
    for c in clusters:
        for each in c.missing if c.state == "NOT READY" else ():
            problems += [f"{c.name} is NOT READY: {each.what}: {each.reason}", f"  remedy: {each.remedy}"]
    problems += [f"{c.name} is INCOMPLETE: {_unfinished(c)}" for c in clusters if c.state == "INCOMPLETE"]
    problems += [
        f"{c.name}: the price of {c.cost.unknown_text} is not known" for c in clusters if c.cost.unknown
    ]
    keepers = [line for c in clusters if c.keeper is not None for line in keeper_lines(c.keeper)]
    return "\n".join([table, *problems, *keepers])


def _row(cluster: ClusterView) -> tuple[object, ...]:
    age = None if cluster.created is None else duration(max(time.time() - cluster.created, 0.0))
    return (
        cluster.name,
        cluster.state,
        cluster.size.text,
        cluster.size.gpus,
        ", ".join(cluster.size.node_types) or None,
        cluster.cost.cell,
        _dollars(cluster.spent_usd),
        _left(cluster),
        cluster.expires,
        cluster.region or None,
        cluster.provider,
        age,
        cluster.owner,
    )


def _left(cluster: ClusterView) -> str | None:
    """Format what is left of the budget; None without one."""
    if cluster.budget_usd is None:
        return None
    if cluster.budget_left_usd is None:
        return f"unknown of ${cluster.budget_usd:,.0f}"
    return f"{_dollars(cluster.budget_left_usd)} of ${cluster.budget_usd:,.0f}"


def _dollars(usd: float | None) -> str | None:
    return None if usd is None else f"${usd:,.2f}"


def _unfinished(cluster: ClusterView) -> str:
    return (
        f"`cloudrec up {cluster.provider} --cluster {cluster.name}` with its options continues, "
        f"`cloudrec down {cluster.provider} --cluster {cluster.name}` removes it"
    )


def keeper_lines(keeper: KeeperView) -> list[str]:
    """Return what the keeper of a cluster does now, for people."""
    if keeper.at is None:
        return [f"{keeper.cluster}: its keeper has not made a round yet"]
    pools = [
        f"{pool}: {_nodes_text(nodes, is_complete=pool in keeper.complete)}"
        for pool, nodes in sorted(keeper.pools.items())
        if nodes
    ]
    lines = [
        f"{keeper.cluster}: run {run.name}{f': {run.reason}' if run.reason else ''}" for run in keeper.runs
    ] or [f"{keeper.cluster}: no run"]
    waiting = f"; {len(keeper.queue)} waiting (cloudrec queue)" if keeper.queue else ""
    return [*lines[:-1], f"{lines[-1]}{waiting}", *(f"  {line}" for line in pools)]


def _nodes_text(nodes: int, *, is_complete: bool) -> str:
    if nodes < 0:
        return "its size is being changed"
    return f"{nodes} nodes" if is_complete else f"{nodes} nodes requested"
