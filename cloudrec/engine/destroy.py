"""Destroy: everything goes, in reverse; one failure never keeps the others; what is left is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.apply import remove
from cloudrec.engine.graph import Condition
from cloudrec.engine.plan import Action, Plan, Step
from cloudrec.engine.walk import walk
from cloudrec.errors import ResourcesRemainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Graph, Observed

    Search = Callable[[], Sequence[Observed]]
    Kinds = Mapping[str, AbstractSet[str]]

_ROUNDS = 4  # what a controller makes while its cluster goes is found by the next search


def plan_removal(cluster: str, existing: Sequence[Observed], *, keep_data: bool) -> Plan:
    """Say what would be removed and what is kept."""
    actions = []
    for found in sorted(existing, key=lambda found: (found.key, found.identity)):
        keep = keep_data and found.holds_data
        actions.append(
            Action(
                step=Step.KEEP if keep else Step.DELETE,
                key=found.key,
                reason="holds data, and --keep-data was given" if keep else "the cluster goes",
                observed=found,
                hourly_usd=found.hourly_usd,
            )
        )
    return Plan(cluster=cluster, actions=actions)


def destroy(
    plan: Plan,
    graph: Graph,
    context: Context,
    search: Search,
    *,
    kinds: Kinds | None = None,
    settle_s: float = 0.0,
) -> None:
    """Remove what the plan names, then look again; ResourcesRemainError names each thing left with its $/h.

    Args:
        plan: from `plan_removal`.
        graph: the cluster's graph, for the order.
        context: journal, drivers and clock.
        search: finds by tag what exists of this cluster now.
        kinds: kind -> kinds it may need, which orders what the graph does not know (another spec's, or what
            a controller made); without, such things go first.
        settle_s: seconds until a listing can be trusted; one empty listing is not proof.
    """
    context.resume(plan.cluster)
    targets = {_id(found): found for action in plan.changes if (found := action.observed) is not None}
    kept = {
        action.observed.identity for action in plan.actions if action.step is Step.KEEP and action.observed
    }
    failed: dict[str, Exception] = {}
    for _ in range(_ROUNDS):
        failed = walk(
            _waits(graph, targets, kinds or {}),
            lambda key: remove(plan.cluster, targets[key], context),  # noqa: B023 - used up in this round
            stop_at_failure=False,
            clock=context.clock,
        )
        left = _left(search, kept, context)
        if not left and settle_s:
            context.clock.sleep(settle_s)
            left = _left(search, kept, context)
        fresh = {_id(found): found for found in left if _id(found) not in failed}
        if failed or not fresh:
            break
        targets = fresh
    remaining = {_id(found): found for found in _left(search, kept, context)} if failed or left else {}
    remaining |= {key: targets[key] for key in failed}
    if remaining:
        _raise_remaining(remaining, failed)


def _id(found: Observed) -> str:
    return f"{found.key} {found.identity}"


def _left(search: Search, kept: AbstractSet[str], context: Context) -> list[Observed]:
    """What a search shows and the thing's own description does not deny: listings lag."""
    return [found for found in search() if found.identity not in kept and not _is_gone(found, context)]


def _is_gone(found: Observed, context: Context) -> bool:
    driver = context.drivers[found.kind]
    condition, _ = context.call(driver, lambda: driver.condition(found.kind, found.identity))
    return condition is Condition.GONE


def _waits(graph: Graph, targets: Mapping[str, Observed], kinds: Kinds) -> dict[str, set[str]]:
    """Return id -> ids that must be gone first: whatever needs it, by the graph, or else by its kind."""
    places = graph.places()
    under = {kind: _under(kind, kinds) for kind in kinds}
    by_key: dict[str, list[str]] = {}
    for target, found in targets.items():
        by_key.setdefault(places.get(found.key, ""), []).append(target)
    waits: dict[str, set[str]] = {target: set() for target in targets}
    for key, resource in graph.resources.items():
        for above in by_key.get(key, ()):
            for need in resource.needs:
                for below in by_key.get(need, ()):
                    waits[below].add(above)
    strangers = by_key.get("", [])
    for stranger in strangers:
        kind = targets[stranger].kind
        for target, found in targets.items():
            if kind in under.get(found.kind, ()):
                waits[stranger].add(target)
            elif target not in strangers and (kind not in kinds or found.kind in under[kind]):
                waits[target].add(stranger)
    return waits


def _under(kind: str, kinds: Kinds) -> set[str]:
    """Return every kind that this one needs, directly or not."""
    found: set[str] = set()
    todo = [kind]
    while todo:
        for need in kinds.get(todo.pop(), ()):
            if need not in found and need != kind:
                found.add(need)
                todo.append(need)
    return found


def _raise_remaining(remaining: Mapping[str, Observed], failed: Mapping[str, Exception]) -> None:
    lines = []
    for key, found in sorted(remaining.items()):
        why = f": {failed[key]}" if key in failed else ""
        lines.append(
            f"  {found.key}  {found.identity or '(identity unknown)'}  ${found.hourly_usd:.2f}/h{why}"
        )
    total = sum(found.hourly_usd for found in remaining.values())
    raise ResourcesRemainError(
        "\n".join([f"{len(remaining)} resources remain, at ${total:.2f}/h:", *lines]),
        remedy="run the same command again; it goes on with what is left",
    )
