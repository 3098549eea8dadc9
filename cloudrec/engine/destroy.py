"""Destroy: everything goes, in reverse; one failure never keeps the others; what is left is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.apply import Action, Plan, Step, remove
from cloudrec.engine.walk import walk
from cloudrec.errors import ResourcesRemainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.engine.apply import Context
    from cloudrec.engine.graph import Graph, Observed

    Search = Callable[[], Sequence[Observed]]


def merge(journal: Sequence[Observed], searched: Sequence[Observed]) -> dict[str, Observed]:
    """Join what the journal knows with what a search by tag found; the search is the fresher."""
    known = {found.key: found for found in journal}
    return known | {found.key: found for found in searched}


def plan_removal(cluster: str, existing: Mapping[str, Observed], *, keep_data: bool) -> Plan:
    """Say what would be removed and what is kept."""
    actions = []
    for key, found in sorted(existing.items()):
        keep = keep_data and found.holds_data
        actions.append(
            Action(
                step=Step.KEEP if keep else Step.DELETE,
                key=key,
                reason="holds data, and --keep-data was given" if keep else "the cluster goes",
                observed=found,
                hourly_usd=found.hourly_usd,
            )
        )
    return Plan(cluster=cluster, actions=actions)


def destroy(plan: Plan, graph: Graph, context: Context, search: Search, *, settle_s: float = 0.0) -> None:
    """Remove what the plan names, then look again; ResourcesRemainError names each thing left with its $/h.

    Args:
        plan: from `plan_removal`.
        graph: the cluster's graph, for the order; what it does not know goes first.
        context: journal, drivers and clock.
        search: finds by tag what exists of this cluster now.
        settle_s: seconds until a listing can be trusted; one empty listing is not proof.
    """
    targets = {action.key: action.observed for action in plan.changes if action.observed is not None}
    kept = {action.key for action in plan.actions if action.step is Step.KEEP}

    failed = walk(
        _reversed_needs(graph, targets),
        lambda key: remove(plan.cluster, targets[key], context),
        stop_at_failure=False,
    )
    left = [found for found in search() if found.key not in kept]
    if not left and not failed and settle_s:
        context.sleep(settle_s)
        left = [found for found in search() if found.key not in kept]
    if left or failed:
        _raise_remaining(left, targets, failed)


def _reversed_needs(graph: Graph, targets: Mapping[str, Observed]) -> dict[str, set[str]]:
    """Return key -> keys that must be gone first: whatever needs it, and whatever the graph does not know."""
    strangers = targets.keys() - graph.resources.keys()
    waits: dict[str, set[str]] = {
        key: set(strangers - {key}) if key not in strangers else set() for key in targets
    }
    for key, resource in graph.resources.items():
        for need in resource.needs:
            if key in targets and need in targets:
                waits[need].add(key)
    return waits


def _raise_remaining(
    left: Sequence[Observed], targets: Mapping[str, Observed], failed: Mapping[str, Exception]
) -> None:
    remaining = {found.key: found for found in left} | {key: targets[key] for key in failed}
    lines = []
    for key, found in sorted(remaining.items()):
        why = f": {failed[key]}" if key in failed else ""
        lines.append(f"  {key}  {found.identity or '(identity unknown)'}  ${found.hourly_usd:.2f}/h{why}")
    total = sum(found.hourly_usd for found in remaining.values())
    raise ResourcesRemainError(
        "\n".join([f"{len(remaining)} resources remain, at ${total:.2f}/h:", *lines]),
        remedy="run the same command again; it goes on with what is left",
    )
