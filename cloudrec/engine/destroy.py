"""Destroy: remove a cluster's resources in reverse order, as many as possible, and name those that remain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.apply import remove
from cloudrec.engine.cost import hourly_text
from cloudrec.engine.graph import Condition, cost_of
from cloudrec.engine.plan import Action, Plan, PlanStep
from cloudrec.engine.walk import walk
from cloudrec.errors import ResourcesRemainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Graph, Observed

    Search = Callable[[], Sequence[Observed]]
    Inspection = Callable[[], Sequence[Observed]]
    Kinds = Mapping[str, AbstractSet[str]]

# Searches and removals: a controller may create resources while its cluster is being removed, and the next
# search finds them.
_ROUNDS = 4


def plan_removal(cluster: str, existing: Sequence[Observed], *, keep_data: bool) -> Plan:
    """Return the plan that removes existing resources; `keep_data` keeps those that hold data."""
    actions = []
    for found in sorted(existing, key=lambda found: (found.key, found.identity)):
        keep = keep_data and found.holds_data
        actions.append(
            Action(
                step=PlanStep.KEEP if keep else PlanStep.DELETE,
                key=found.key,
                reason="holds data, and --keep-data was given" if keep else "the cluster is removed",
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
    inspect: Inspection = tuple,
) -> None:
    """Remove the plan's resources, then search again and remove those that appeared meanwhile.

    Args:
        plan: from `plan_removal`.
        graph: the cluster's graph, for the order.
        context: journal, drivers and clock.
        search: finds the cluster's existing resources by tag.
        kinds: kind -> kinds that it may need. It orders resources that are not in the graph (of an earlier
            spec, or made by a controller). Kinds that it does not name are removed before the graph's.
        settle_s: seconds until a listing can be trusted. After an empty listing, a second one is made after
            this time.
        inspect: finds resources that no driver manages, at the end. They are named and not removed.

    Raises:
        ResourcesRemainError: resources remain; the message names each with its price an hour.
    """
    context.resume(plan.cluster)
    targets = {_id(found): found for action in plan.changes if (found := action.observed) is not None}
    kept = {
        action.observed.identity
        for action in plan.actions
        if action.step is PlanStep.KEEP and action.observed
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
    named = {found.identity for found in remaining.values()}
    unmanaged = {_id(found): found for found in inspect() if found.identity not in named}
    if remaining or unmanaged:
        _raise_remaining(remaining, failed, unmanaged)


def _id(found: Observed) -> str:
    return f"{found.key} {found.identity}"


def _left(search: Search, kept: AbstractSet[str], context: Context) -> list[Observed]:
    """Return the resources that a search finds, without kept ones and those that are gone already.

    Listings lag, so the state of each resource is read as well.
    """
    return [found for found in search() if found.identity not in kept and not _is_gone(found, context)]


def _is_gone(found: Observed, context: Context) -> bool:
    driver = context.drivers[found.kind]
    condition, _ = context.call(driver, lambda: driver.condition(found.kind, found.identity))
    return condition is Condition.GONE


def _waits(graph: Graph, targets: Mapping[str, Observed], kinds: Kinds) -> dict[str, set[str]]:
    """Return id -> ids that must be removed first: those that need it, by the graph or else by kind."""
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
    strangers = by_key.get("", [])  # resources that are not in the graph
    for stranger in strangers:
        kind = targets[stranger].kind
        for target, found in targets.items():
            if kind in under.get(found.kind, ()):
                waits[stranger].add(target)
            elif target not in strangers and (kind not in kinds or found.kind in under[kind]):
                waits[target].add(stranger)
    return waits


def _under(kind: str, kinds: Kinds) -> set[str]:
    """Return every kind that this one needs, directly or through others."""
    found: set[str] = set()
    todo = [kind]
    while todo:
        for need in kinds.get(todo.pop(), ()):
            if need not in found and need != kind:
                found.add(need)
                todo.append(need)
    return found


def _raise_remaining(
    managed: Mapping[str, Observed], failed: Mapping[str, Exception], unmanaged: Mapping[str, Observed]
) -> None:
    lines = []
    remaining = {**managed, **unmanaged}
    for key, found in sorted(remaining.items()):
        why = f": {failed[key]}" if key in failed else ""
        price = hourly_text(found.hourly_usd)
        lines.append(f"  {found.key}  {found.identity or '(identity unknown)'}  {price}{why}")
    cost = cost_of(remaining.values())
    count = f"{len(remaining)} resources remain" if len(remaining) > 1 else "1 resource remains"
    raise ResourcesRemainError(
        "\n".join([f"{count} ({cost.text}):", *lines]), remedy=_remedy(managed, unmanaged)
    )


def _remedy(managed: Mapping[str, Observed], unmanaged: Mapping[str, Observed]) -> str:
    again = "run the same command again; it continues with what is left"
    if not unmanaged:
        return again
    kinds = ", ".join(sorted({found.kind for found in unmanaged.values()}))
    by_hand = f"cloudrec did not make the resources of kind {kinds}: remove them with the cloud's own tools"
    return f"{again}. {by_hand}" if managed else f"{by_hand}, then {again}"
