"""Plan: compare the graph with the existing resources and list the necessary changes; changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.cost import Cost, Item
from cloudrec.engine.graph import NODES, TAG_CLUSTER, TAG_OWNER, Condition
from cloudrec.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Graph, Observed, Resource

_LOOKS = 16  # concurrent look-ups: threads wait for the cloud, not for this machine's cores


class PlanStep(Enum):
    """The step that a resource needs."""

    CREATE = "create"
    KEEP = "keep"
    CHANGE = "change"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One line of a plan: a resource, the step that it needs, and the reason.

    Attributes:
        step: the step.
        key: the resource's key; for a resource with candidates its own key, not the candidate's.
        reason: why the step is needed.
        hourly_usd: the resource's price in USD an hour after the step; None if unknown.
        resource: the requested resource; None if it is to be deleted.
        observed: the existing resource; None if there is none.
        candidate: for a resource with candidates, the one that exists, or else the one to try first.
    """

    step: PlanStep
    key: str
    reason: str
    hourly_usd: float | None
    resource: Resource | None = None
    observed: Observed | None = None
    candidate: Resource | None = None

    @property
    def item(self) -> Item:
        """The item that its price is shown for."""
        described = self.candidate or self.resource
        return described.item if described is not None else Item(name=self.key)


@dataclass(frozen=True, kw_only=True)
class Upfront:
    """What a plan buys in advance, and cannot give back.

    Attributes:
        what: what it is, for people.
        usd: its price in USD; None if unknown.
    """

    what: str
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class PlannedData:
    """Where the nodes read the dataset that a cluster is for.

    Attributes:
        line: all of it in one line of at most 69 characters.
        tier: local, lustre or bucket.
        size_gb: the dataset's size; None if it is not known.
        read_gb_s: GB/s that one node reads; None if it is not known.
        basis: whose number that is, and its date; empty for an unknown one.
        source: where it is from; empty for an unknown one.
    """

    line: str
    tier: str
    size_gb: float | None
    read_gb_s: float | None
    basis: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The actions for one cluster. `--dry-run` prints the same plan that `apply` carries out.

    Attributes:
        cluster: the cluster's name.
        actions: in the order of creation, then the deletions.
        region: where its prices are valid; empty without a cloud.
        expires: the cluster's end in ISO 8601; None if it has none.
        left_s: the time until then.
        minutes: how long the actions take, at least and at most, as a rule; None if that is not known.
        upfront: what it buys in advance; None for nothing.
        data: where the nodes read the dataset; None without one.
        standby: the nodes that the keeper of a managed cluster creates for runs; None without a keeper.
        storage: whose storage its runs use; empty for its own.
    """

    cluster: str
    actions: Sequence[Action]
    region: str = ""
    expires: str | None = None
    left_s: float = 0.0
    minutes: tuple[int, int] | None = None
    upfront: Upfront | None = None
    data: PlannedData | None = None
    standby: Resource | None = None
    storage: str = ""

    @property
    def changes(self) -> Sequence[Action]:
        """The actions that change a resource."""
        return [action for action in self.actions if action.step is not PlanStep.KEEP]

    @property
    def cost(self) -> Cost:
        """The cluster's cost after the plan; a resource with candidates counts as its first one."""
        return Cost.of(
            (each.item, each.hourly_usd) for each in self.actions if each.step is not PlanStep.DELETE
        )

    @property
    def idle(self) -> Cost:
        """The cluster's cost after the plan while it has no GPU nodes, which are what has candidates."""
        return Cost.of(
            (each.item, each.hourly_usd)
            for each in self.actions
            if each.step is not PlanStep.DELETE and not (each.resource and each.resource.candidates)
        )

    @property
    def most(self) -> Cost:
        """The highest possible cost after the plan: a new resource counts as its dearest candidate.

        The nodes that a keeper creates for a run count, too.
        """
        standby = self.standby.most if self.standby is not None else ()
        return Cost.of(
            [
                *(
                    price
                    for each in self.actions
                    if each.step is not PlanStep.DELETE
                    for price in _most(each)
                ),
                *standby,
            ]
        )


def plan(
    cluster: str,
    graph: Graph,
    context: Context,
    *,
    known: Sequence[Observed],
    searched: Sequence[Observed],
    settle_s: float = 0.0,
) -> Plan:
    """Compare the requested resources with the existing ones and return the plan.

    Args:
        cluster: the cluster's name.
        graph: the requested resources.
        context: journal, drivers and clock.
        known: the cluster's resources in the journal.
        searched: the cluster's resources that a search by tag found.
        settle_s: seconds until a listing shows a new resource. They are waited only if a resource that no
            listing shows may exist: the journal has it and the cloud does not report it as gone, or another
            home made the cluster.

    Raises:
        UsageError: a resource of a requested name belongs to another cluster or owner.
        SpecError: a change requires replacing a resource that others need, or one that holds data.
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
    """Compare one resource again, because the replacement of one that it needs may have removed it."""
    return _compare(resource, _look([resource], context)[resource.key], context)


def _superfluous(
    graph: Graph,
    actions: Sequence[Action],
    found: Mapping[str, Mapping[str, Observed]],
    known: Sequence[Observed],
    searched: Sequence[Observed],
) -> list[Action]:
    """Return the deletions: resources that the graph does not name, duplicates and unused candidates."""
    chosen = {
        action.key: (action.observed.kind, action.observed.identity)
        for action in actions
        if action.observed is not None
    }
    places = graph.places()
    deletions: list[Action] = []
    looked_up = [observed for seen in found.values() for observed in seen.values()]
    seen = {(observed.kind, observed.identity): observed for observed in (*looked_up, *searched)}
    for observed in seen.values():
        place = places.get(observed.key)
        if place is None and observed.outside_graph:
            continue  # a run that is in progress, an add-on, the guard
        if place is None:
            deletions.append(_deletion(observed, "no longer asked for"))
        # A resource that the search found, but the look-up of its key did not (`place` is not in `chosen`),
        # is incomplete or new. It is left alone; a later command finds it again.
        elif place in chosen and (observed.kind, observed.identity) not in chosen.values():
            deletions.append(_deletion(observed, f"another one serves as {place}"))
    listed = {observed.key for observed in seen.values()} | places.keys()
    return deletions + [
        _deletion(observed, "no longer asked for") for observed in known if observed.key not in listed
    ]


def merge(known: Iterable[Observed], searched: Iterable[Observed]) -> list[Observed]:
    """Return the resources of a search by tag, and those of the journal that the search did not find.

    For a resource in both, the search's entry is kept, because it is newer. A journal entry without an
    identity is matched by its key.
    """
    listed = list(searched)
    keys, identities = {found.key for found in listed}, {found.identity for found in listed}
    return listed + [
        entry
        for entry in known
        if (entry.identity not in identities if entry.identity else entry.key not in keys)
    ]


def _most(action: Action) -> Sequence[tuple[Item, float | None]]:
    if action.resource is not None and action.step in {PlanStep.CREATE, PlanStep.REPLACE}:
        return action.resource.most
    return [(action.item, action.hourly_usd)]


def _deletion(observed: Observed, reason: str) -> Action:
    return Action(step=PlanStep.DELETE, key=observed.key, reason=reason, observed=observed, hourly_usd=0.0)


def _look(resources: Iterable[Resource], context: Context) -> dict[str, dict[str, Observed]]:
    """Find each resource, or each of its candidates; return key -> key of the one found -> that one."""
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
    """Return the keys of resources that no listing shows, but that may exist."""
    missing = [key for key, seen in found.items() if not seen]
    if not known and searched:  # made by another home, perhaps a moment ago
        return missing
    written = {entry.key: entry for entry in known}
    return [key for key in missing if key in written and not _is_gone(written[key], context)]


def _is_gone(entry: Observed, context: Context) -> bool:
    if not entry.identity:  # only the intent was written: the create call may have succeeded
        return False
    driver = context.drivers[entry.kind]
    condition, _ = context.call(driver, partial(driver.condition, entry.kind, entry.identity))
    return condition is Condition.GONE


def _compare(resource: Resource, found: Mapping[str, Observed], context: Context) -> Action:
    if resource.candidates:
        return _compare_choice(resource, found, context)
    return _compare_one(resource, found.get(resource.key), context)


def _compare_one(resource: Resource, observed: Observed | None, context: Context) -> Action:
    if observed is not None and resource.kept:
        resource, observed = resource.beside(observed), _as_kept(resource, observed)
    action = Action(
        step=PlanStep.CREATE,
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
        return replace(action, step=PlanStep.REPLACE, reason=f"failed: {observed.reason}")
    if observed.condition is Condition.DELETING:
        return replace(action, step=PlanStep.REPLACE, reason="is being deleted")
    if observed.condition is Condition.PENDING:
        return replace(action, step=PlanStep.CHANGE, reason="still being created")
    driver = context.drivers[resource.kind]
    # Some need the cloud for it: whether a role lacks a boundary depends on the account.
    difference = context.call(driver, partial(driver.difference, resource, observed))
    if difference is None:
        return replace(action, step=PlanStep.KEEP, reason="as asked for")
    return replace(
        action, step=PlanStep.CHANGE if difference.in_place else PlanStep.REPLACE, reason=difference.reason
    )


def _as_kept(resource: Resource, observed: Observed) -> Observed:
    """Return a pool without what concerns its nodes alone, if something else gives it its nodes."""
    if NODES not in resource.kept:
        return observed
    is_short = observed.condition is Condition.UNAVAILABLE
    return replace(observed, machines=None, condition=Condition.READY if is_short else observed.condition)


def _compare_choice(resource: Resource, found: Mapping[str, Observed], context: Context) -> Action:
    compared = [
        replace(_compare_one(candidate, found[candidate.key], context), candidate=candidate)
        for candidate in resource.candidates
        if candidate.key in found
    ]
    usable = [action for action in compared if action.step in {PlanStep.KEEP, PlanStep.CHANGE}]
    if usable:
        return replace(usable[0], key=resource.key, resource=resource)
    if compared:
        return replace(compared[0], key=resource.key, resource=resource)
    first = resource.candidates[0]
    return Action(
        step=PlanStep.CREATE,
        key=resource.key,
        reason="does not exist",
        hourly_usd=first.hourly_usd,
        resource=resource,
        candidate=first,
    )


def _refuse_another(resource: Resource, observed: Observed) -> None:
    if observed.cluster != resource.tags.get(TAG_CLUSTER):
        says = f"it is of cluster {observed.cluster!r}" if observed.cluster else ""
        says = says or observed.reason or "it has no tag of cloudrec"
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
    """Refuse to replace a working resource that others need or that holds data; only `down` removes those."""
    existing = {action.key for action in actions if action.observed is not None}
    for action in actions:
        if action.step is not PlanStep.REPLACE or action.observed is None or action.resource is None:
            continue
        if action.observed.condition is not Condition.READY:
            continue  # failed or being deleted: no other resource can be using it
        above = [key for key in existing if action.key in graph.resources[key].needs]
        if not above and not action.resource.holds_data:
            continue
        what = f"{', '.join(sorted(above))} need it" if above else "it holds data"
        raise SpecError(
            f"{action.key}: {action.reason}; the cloud cannot change that in place, and {what}",
            remedy="change the spec back, or `cloudrec down` (with --keep-data to keep data) and `up` again",
        )
