"""Apply: carry out a plan; each resource is changed as soon as the resources that it needs are ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cloudrec.engine.context import UnavailableError
from cloudrec.engine.graph import Condition, ErrorVerdict, Growing, Holding, Resumable
from cloudrec.engine.plan import PlanStep, look_again
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError, NoCapacityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Driver, Graph, Observed, Resource
    from cloudrec.engine.plan import Action, Plan


def apply(plan: Plan, graph: Graph, context: Context, *, settle_s: float = 0.0) -> None:
    """Carry out a plan. After a failure, a new plan and `apply` continue from the existing resources.

    Args:
        plan: from `plan`.
        graph: the graph that the plan was made from.
        context: journal, drivers and clock.
        settle_s: seconds until a listing shows a new resource; waited if a create call's response was lost.

    Raises:
        CloudrecError: the first failure; the message lists the others.
    """
    actions = {action.key: action for action in plan.actions if action.resource is not None}
    work = _Work(cluster=plan.cluster, context=context, settle_s=settle_s)
    failed = walk(
        graph.needs(), lambda key: work.converge(actions[key]), stop_at_failure=True, clock=context.clock
    )
    if failed:
        raise_first(failed)
    # Deletions come last, so that a failure above removes nothing; and newest first, because a newer resource
    # may need an older one.
    superfluous = [action.observed for action in plan.actions if action.step is PlanStep.DELETE]
    for observed in (*work.useless, *reversed(superfluous)):
        if observed is not None:
            remove(plan.cluster, observed, context)


def remove(cluster: str, found: Observed, context: Context) -> None:
    """Delete one resource, wait until it is gone, and then remove it from the journal."""
    driver = context.drivers[found.kind]
    # An entry without an identity is an intent; no search found its resource, so there is nothing to delete.
    if found.identity:
        context.note(cluster, found.key, "deleting")
        context.call(driver, partial(driver.delete, found))
        note_operation(cluster, found.key, found.identity, context, driver)
        context.await_condition(driver, found.kind, found.identity, Condition.GONE)
    context.journal.forget(cluster, found.key, found.identity)
    context.note(cluster, found.key, "gone")


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The state of one `apply`; its worker threads share it."""

    cluster: str
    context: Context
    settle_s: float
    identities: dict[str, str] = field(default_factory=dict)  # key -> identity of ready resources
    renewed: set[str] = field(default_factory=set)  # keys of resources that were replaced or recreated
    useless: list[Observed] = field(default_factory=list)  # remains of unavailable candidates

    def converge(self, action: Action) -> None:
        """Bring one resource into its requested state."""
        resource = action.resource
        if resource is None:
            raise AssertionError(f"{action.key}: only resources that should exist are converged")
        # Deleting a resource may delete those that need it (a GKE cluster's node pools), so the plan's
        # observation of this one is out of date.
        is_moved = not self.renewed.isdisjoint(resource.needs)
        if is_moved:
            action = look_again(resource, self.context)
        if action.step is PlanStep.REPLACE or (is_moved and action.step is PlanStep.CREATE):
            self.renewed.add(action.key)
        if resource.candidates:
            self.identities[action.key] = self._choose(resource, action)
        else:
            self.identities[action.key] = self._converge_one(resource, action)

    def _choose(self, choice: Resource, action: Action) -> str:
        """Return the identity of the existing candidate, or create the first one that is available.

        Raises:
            NoCapacityError: no candidate is available; the message has the reason for each.
        """
        if action.candidate is not None and action.step in {PlanStep.KEEP, PlanStep.CHANGE}:
            try:
                return self._converge_one(action.candidate, action)
            except UnavailableError as error:
                self._keep_those_in_use(action.candidate, action, error)
                refused = {action.candidate.key: error.message}
                self._give_up(action.candidate, error.message)
        else:
            refused = {}
            if action.observed is not None:  # the remains of an attempt that failed
                remove(self.cluster, action.observed, self.context)
        for candidate in choice.candidates:
            if candidate.key in refused:
                continue
            try:
                return self._create(candidate)
            except UnavailableError as error:
                refused[candidate.key] = error.message
                self._give_up(candidate, error.message)
        tried = "".join(f"\n  {key}: {reason}" for key, reason in refused.items())
        # A pool that the cloud itself still tries to fill is worth more than none.
        kept = action.observed if action.candidate and _waits(action.candidate, action.observed) else None
        for observed in self.useless:
            if kept is None or observed.identity != kept.identity:
                remove(self.cluster, observed, self.context)
        self.useless.clear()
        raise NoCapacityError(
            f"{choice.key}: none of {len(refused)} candidates can be had; all else is kept:{tried}",
            remedy="`cloudrec up` again continues from here; allow other instance types or zones, or "
            "on-demand beside spot; `cloudrec down` removes what is there",
        )

    def _keep_those_in_use(self, candidate: Resource, action: Action, error: UnavailableError) -> None:
        """Give the further nodes of a pool back if the cloud has not all of them, and keep the others.

        Returns if the pool had no nodes before: it is then given up like a new one.

        Raises:
            NoCapacityError: it had some, which may be in use.
        """
        driver, seen = self.context.drivers[candidate.kind], action.observed
        if seen is None or not isinstance(driver, Growing):
            return
        if _waits(candidate, seen):
            if seen.machines is None or not seen.machines.running:
                return
            self.context.note(self.cluster, candidate.key, "unavailable", error.message)
            raise NoCapacityError(
                f"{candidate.key} keeps the nodes that it has, and waits for the others: {error.message}",
                remedy="the cloud starts them once it can; `cloudrec status` shows whether they run",
            ) from error
        before = driver.as_before(candidate, seen)
        if before is None:
            return
        self.context.note(self.cluster, candidate.key, "unavailable", error.message)
        now = self.context.call(driver, partial(driver.find, before)) or seen
        change = partial(driver.change, before, now, identities=dict(self.identities))
        self.context.call(driver, change)
        self._await_ready(before, seen.identity)
        raise NoCapacityError(
            f"{candidate.key} keeps the nodes that it has, and there are no more: {error.message}",
            remedy="run `cloudrec up` again later, or set cluster.nodes to the number that it has",
        ) from error

    def _give_up(self, candidate: Resource, reason: str) -> None:
        """Record why a candidate is unavailable; `apply` removes its remains once another one is ready.

        Remains that hold capacity are removed at once: they cost money, and under a quota that just suffices
        no other candidate could be had beside them.
        """
        self.context.note(self.cluster, candidate.key, "unavailable", reason)
        driver = self.context.drivers[candidate.kind]
        observed = self.context.call(driver, partial(driver.find, candidate))
        if observed is None:
            self.context.journal.forget(self.cluster, candidate.key)
        elif isinstance(driver, Holding) and self.context.call(driver, partial(driver.holds, observed)):
            remove(self.cluster, observed, self.context)
        else:
            self.useless.append(observed)

    def _converge_one(self, resource: Resource, action: Action) -> str:
        observed = action.observed
        if observed is None:
            return self._create(resource)
        if action.step is PlanStep.REPLACE:
            self.context.note(self.cluster, resource.key, "replacing", action.reason)
            remove(self.cluster, observed, self.context)
            return self._create(resource)
        if action.step is PlanStep.KEEP:
            self._adopt(resource, observed.identity)
            # An earlier process may have ended after the resource was ready and before it recorded that.
            self.context.journal.operate(self.cluster, resource.key, "")
            return observed.identity
        return self._finish(resource, observed)

    def _create(self, resource: Resource) -> str:
        context, driver = self.context, self.context.drivers[resource.kind]
        # Written before the call: if this process dies during it, the next command knows what to look for.
        if not resource.is_shared:
            context.journal.intend(self.cluster, resource)
        context.report(resource.key, "creating")
        # The same for every attempt, in any process. `CloudDriver` makes it unique for each creation.
        token = str(uuid5(NAMESPACE_URL, f"cloudrec/{self.cluster}/{resource.key}"))
        attempts = _Attempts(self, resource, driver, token)
        context.call(driver, attempts.make)
        if attempts.found is not None:
            return self._finish(resource, attempts.found)
        identity = attempts.identity
        context.journal.identify(self.cluster, resource.key, identity)
        self._await_ready(resource, identity)
        context.note(self.cluster, resource.key, "ready")
        return identity

    def _adopt(self, resource: Resource, identity: str) -> None:
        """Write an existing resource of the cluster into the journal; another home may have made it."""
        if not resource.is_shared:
            self.context.journal.adopt(self.cluster, resource, identity)

    def _await_ready(self, resource: Resource, identity: str) -> None:
        context, driver = self.context, self.context.drivers[resource.kind]
        note_operation(self.cluster, resource.key, identity, context, driver)
        context.await_condition(driver, resource.kind, identity, Condition.READY)
        note_operation(self.cluster, resource.key, identity, context, driver)

    def _finish(self, resource: Resource, observed: Observed) -> str:
        """Wait until an existing resource is ready, then change it where it differs; return its identity."""
        context, driver = self.context, self.context.drivers[resource.kind]
        self._adopt(resource, observed.identity)
        if observed.condition is not Condition.READY:
            self._await_ready(resource, observed.identity)
            observed = context.call(driver, partial(driver.find, resource)) or observed
        difference = context.call(driver, partial(driver.difference, resource, observed))
        if difference is not None and not difference.in_place:
            context.note(self.cluster, resource.key, "replacing", difference.reason)
            remove(self.cluster, observed, context)
            return self._create(resource)
        if difference is not None:
            context.note(self.cluster, resource.key, "changing", difference.reason)
            change = partial(driver.change, resource, observed, identities=dict(self.identities))
            context.call(driver, change)
            self._await_ready(resource, observed.identity)
        context.journal.operate(self.cluster, resource.key, "")
        context.note(self.cluster, resource.key, "ready")
        return observed.identity


def _waits(candidate: Resource, seen: Observed | None) -> bool:
    """Return whether a pool had its size before, and the cloud starts its missing nodes by itself."""
    if seen is None or seen.machines is None or not seen.machines.is_retried:
        return False
    wanted = candidate.properties.requested().get("nodes")
    return bool(seen.machines.lack) and seen.properties.get("nodes") == wanted


@dataclass
class _Attempts:
    """The attempts at creating one resource; a retry after a lost response first looks for the resource."""

    work: _Work
    resource: Resource
    driver: Driver
    token: str
    identity: str = ""
    found: Observed | None = None
    doubtful: bool = False  # whether an attempt may have created it

    def make(self) -> None:
        """Create the resource, or find the one that an earlier attempt created."""
        if self.doubtful:
            self.found = self.driver.find(self.resource)
            # Listings lag: only a second look after the settling time proves that there is no resource.
            if self.found is None:
                self.work.context.clock.sleep(self.work.settle_s)
                self.found = self.driver.find(self.resource)
            if self.found is not None:
                return
        identities = self.work.identities
        try:
            self.identity = self.driver.create(self.resource, token=self.token, identities=dict(identities))
        except Exception as error:
            self.doubtful |= self.driver.verdict(error) is ErrorVerdict.LOST
            raise


def note_operation(cluster: str, key: str, identity: str, context: Context, driver: Driver) -> None:
    """Write a resource's operation in progress into the journal, if the driver is `Resumable`."""
    if isinstance(driver, Resumable):
        context.journal.operate(cluster, key, driver.operation(identity))


def raise_first(failed: Mapping[str, Exception]) -> None:
    """Raise the first failure; its message lists the others."""
    (key, first), *others = failed.items()
    also = "".join(f"\nalso: {other}: {error}" for other, error in others)
    if isinstance(first, CloudrecError):
        named = first.message if key in first.message else f"{key}: {first.message}"
        raise type(first)(f"{named}{also}", remedy=first.remedy) from first
    raise CloudrecError(f"{key}: {type(first).__name__}: {first}{also}") from first
