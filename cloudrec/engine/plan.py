"""Plan: compare what should exist with what does, and say what has to be done; nothing is changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER, TAG_OWNER, Condition
from cloudrec.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Graph, Observed, Resource

_LOOKS = 16  # at once: they wait for a cloud, not for this machine


class Step(Enum):
    """What has to be done with one resource."""

    CREATE = "create"
    KEEP = "keep"
    CHANGE = "change"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One line of a plan: what is done with one resource, and why.

    Attributes:
        step: what is done.
        key: of the resource; of a choice, its own and not its candidate's.
        reason: why.
        hourly_usd: what it costs an hour afterwards.
        resource: what should exist; None for what goes.
        observed: what exists.
        candidate: of a choice, the one that exists, or the one that is tried first.
    """

    step: Step
    key: str
    reason: str
    hourly_usd: float = 0.0
    resource: Resource | None = None
    observed: Observed | None = None
    candidate: Resource | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be done, as a value: what `--dry-run` prints is what `apply` does."""

    cluster: str
    actions: Sequence[Action]

    @property
    def changes(self) -> Sequence[Action]:
        """The actions that change something."""
        return [action for action in self.actions if action.step is not Step.KEEP]

    @property
    def hourly_usd(self) -> float:
        """What the cluster costs an hour once the plan is done."""
        return sum(action.hourly_usd for action in self.actions if action.step is not Step.DELETE)


def plan(
    cluster: str,
    graph: Graph,
    context: Context,
    *,
    known: Sequence[Observed],
    searched: Sequence[Observed],
    settle_s: float = 0.0,
) -> Plan:
    """Compare what should exist with what does.

    Args:
        cluster: the cluster's name.
        graph: what should exist.
        context: the drivers.
        known: what the journal holds of this cluster.
        searched: what a search by tag found of it.
        settle_s: seconds until a listing shows what was made just now. Waited out only where something is
            missing that may have been made: an intent without an identity, or another home's cluster.

    Raises:
        UsageError: something of a needed name is another's, or was made by another owner.
        SpecError: a change that the cloud makes only by replacing what other things stand on.
    """
    context.resume(cluster)
    found = _look(graph.resources.values(), context)
    doubtful = _doubtful(found, known, searched, context)
    if doubtful and settle_s:
        context.clock.sleep(settle_s)
        found |= _look([graph.resources[key] for key in doubtful], context)
    actions = [_compare(graph.resources[key], found[key], context) for key in graph.order()]
    _refuse_to_undermine(graph, actions)
    return Plan(cluster=cluster, actions=[*actions, *_superfluous(graph, actions, found, known, searched)])


def look_again(resource: Resource, context: Context) -> Action:
    """Compare one resource anew, after something that it needs was replaced and may have taken it along."""
    return _compare(resource, _look([resource], context)[resource.key], context)


def _superfluous(
    graph: Graph,
    actions: Sequence[Action],
    found: Mapping[str, Mapping[str, Observed]],
    known: Sequence[Observed],
    searched: Sequence[Observed],
) -> list[Action]:
    """What goes: what the graph does not name, second ones, and candidates beside the one that serves."""
    chosen = {
        action.key: (action.observed.kind, action.observed.identity)
        for action in actions
        if action.observed is not None
    }
    places = graph.places()
    goes: list[Action] = []
    looked_up = [observed for seen in found.values() for observed in seen.values()]
    seen = {(observed.kind, observed.identity): observed for observed in (*looked_up, *searched)}
    for observed in seen.values():
        place = places.get(observed.key)
        if place is None:
            goes.append(_goes(observed, "no longer asked for"))
        # What only a listing shows of a key is half made, or made a moment ago: it is found again later.
        elif place in chosen and (observed.kind, observed.identity) not in chosen.values():
            goes.append(_goes(observed, f"another one serves as {place}"))
    listed = {observed.key for observed in seen.values()} | places.keys()
    return goes + [_goes(observed, "no longer asked for") for observed in known if observed.key not in listed]


def merge(known: Iterable[Observed], searched: Iterable[Observed]) -> list[Observed]:
    """Join what the journal knows with what a search by tag found, which is the fresher of the two."""
    listed = list(searched)
    keys, identities = {found.key for found in listed}, {found.identity for found in listed}
    return listed + [
        entry
        for entry in known
        if (entry.identity not in identities if entry.identity else entry.key not in keys)
    ]


def _goes(observed: Observed, reason: str) -> Action:
    return Action(step=Step.DELETE, key=observed.key, reason=reason, observed=observed)


def _look(resources: Iterable[Resource], context: Context) -> dict[str, dict[str, Observed]]:
    """Find each resource, or each candidate of a choice: key -> key of what was found -> what was found."""
    wanted = [(each.key, one) for each in resources for one in (each.candidates or (each,))]

    def find(one: Resource) -> Observed | None:
        driver = context.drivers[one.kind]
        return context.call(driver, partial(driver.find, one))

    found: dict[str, dict[str, Observed]] = {key: {} for key, _ in wanted}
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="plan") as pool:
        for (key, one), observed in zip(wanted, pool.map(find, [one for _, one in wanted]), strict=True):
            if observed is not None:
                found[key][one.key] = observed
    return found


def _doubtful(
    found: Mapping[str, Mapping[str, Observed]],
    known: Sequence[Observed],
    searched: Sequence[Observed],
    context: Context,
) -> list[str]:
    """The keys of what no listing shows, and what may be there all the same."""
    missing = [key for key, seen in found.items() if not seen]
    if not known and searched:  # made by another home, perhaps a moment ago
        return missing
    written = {entry.key: entry for entry in known}
    return [key for key in missing if key in written and not _is_gone(written[key], context)]


def _is_gone(entry: Observed, context: Context) -> bool:
    if not entry.identity:  # an intent: nobody knows
        return False
    driver = context.drivers[entry.kind]
    condition, _ = context.call(driver, partial(driver.condition, entry.kind, entry.identity))
    return condition is Condition.GONE


def _compare(resource: Resource, found: Mapping[str, Observed], context: Context) -> Action:
    if resource.candidates:
        return _compare_choice(resource, found, context)
    return _compare_one(resource, found.get(resource.key), context)


def _compare_one(resource: Resource, observed: Observed | None, context: Context) -> Action:
    action = Action(
        step=Step.CREATE,
        key=resource.key,
        reason="does not exist",
        hourly_usd=resource.hourly_usd,
        resource=resource,
        observed=observed,
    )
    if observed is None:
        return action
    if not resource.is_shared:
        _refuse_another(resource, observed)
    if observed.condition in {Condition.FAILED, Condition.UNAVAILABLE}:
        return replace(action, step=Step.REPLACE, reason=f"failed: {observed.reason}")
    if observed.condition is Condition.DELETING:
        return replace(action, step=Step.REPLACE, reason="is being deleted")
    if observed.condition is Condition.PENDING:
        return replace(action, step=Step.CHANGE, reason="still being created")
    difference = context.drivers[resource.kind].difference(resource, observed)
    if difference is None:
        return replace(action, step=Step.KEEP, reason="as asked for")
    return replace(
        action, step=Step.CHANGE if difference.in_place else Step.REPLACE, reason=difference.reason
    )


def _compare_choice(resource: Resource, found: Mapping[str, Observed], context: Context) -> Action:
    compared = [
        replace(_compare_one(candidate, found[candidate.key], context), candidate=candidate)
        for candidate in resource.candidates
        if candidate.key in found
    ]
    had = [action for action in compared if action.step in {Step.KEEP, Step.CHANGE}]
    if had:
        return replace(had[0], key=resource.key, resource=resource)
    if compared:
        return replace(compared[0], key=resource.key, resource=resource)
    first = resource.candidates[0]
    return Action(
        step=Step.CREATE,
        key=resource.key,
        reason="does not exist",
        hourly_usd=first.hourly_usd,
        resource=resource,
        candidate=first,
    )


def _refuse_another(resource: Resource, observed: Observed) -> None:
    if observed.cluster != resource.tags.get(TAG_CLUSTER):
        says = f"it is of cluster {observed.cluster!r}" if observed.cluster else "it bears no tag of ours"
        raise UsageError(
            f"{resource.key} ({observed.identity}) exists and is not this cluster's: {says}",
            remedy="choose another cluster name with --cluster",
        )
    wanted = resource.tags.get(TAG_OWNER)
    if wanted and observed.owner != wanted:
        raise UsageError(
            f"{resource.key} ({observed.identity}) is of a cluster of this name of {observed.owner!r}, not "
            f"of {wanted!r}",
            remedy=f"choose another name with --cluster, or say that it is yours: "
            f"--set cluster.owner={observed.owner}",
        )


def _refuse_to_undermine(graph: Graph, actions: Sequence[Action]) -> None:
    """Refuse to replace what other things stand on, and what holds data: `down` says what that costs."""
    existing = {action.key for action in actions if action.observed is not None}
    for action in actions:
        if action.step is not Step.REPLACE or action.observed is None or action.resource is None:
            continue
        if action.observed.condition is not Condition.READY:
            continue  # failed or going: nothing can stand on it
        above = [key for key in existing if action.key in graph.resources[key].needs]
        if not above and not action.resource.holds_data:
            continue
        what = f"{', '.join(sorted(above))} need it" if above else "it holds data"
        raise SpecError(
            f"{action.key}: {action.reason}; the cloud cannot change that in place, and {what}",
            remedy="change the spec back, or `cloudrec down` (with --keep-data to keep data) and `up` again",
        )
