"""Apply: from what exists to what should, each thing the moment that what it needs is ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cloudrec.engine.context import UnavailableError
from cloudrec.engine.graph import Condition, Resumable, Verdict
from cloudrec.engine.plan import Step, look_again
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError, NoCapacityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.context import Context
    from cloudrec.engine.graph import Driver, Graph, Observed, Resource
    from cloudrec.engine.plan import Action, Plan


def apply(plan: Plan, graph: Graph, context: Context, *, settle_s: float = 0.0) -> None:
    """Do what the plan says; CloudrecError names the first failure. Run again, it converges.

    Args:
        plan: from `plan`.
        graph: the same that the plan was made from.
        context: journal, drivers and clock.
        settle_s: seconds until a listing shows what was made just now, waited where an answer was lost.
    """
    actions = {action.key: action for action in plan.actions if action.resource is not None}
    work = _Work(cluster=plan.cluster, context=context, settle_s=settle_s)
    failed = walk(
        graph.needs(), lambda key: work.converge(actions[key]), stop_at_failure=True, clock=context.clock
    )
    if failed:
        raise_first(failed)
    # Newest first: what was made later may need what was made before. Last of all, so that a failure
    # above removes nothing.
    superfluous = [action.observed for action in plan.actions if action.step is Step.DELETE]
    for observed in (*work.useless, *reversed(superfluous)):
        if observed is not None:
            remove(plan.cluster, observed, context)


def remove(cluster: str, found: Observed, context: Context) -> None:
    """Delete one thing, wait until it is gone, and only then forget it."""
    driver = context.drivers[found.kind]
    if found.identity:  # an intent that no search found was never carried out: nothing is there to delete
        context.note(cluster, found.key, "deleting")
        context.call(driver, partial(driver.delete, found))
        note_operation(cluster, found.key, found.identity, context, driver)
        context.await_condition(driver, found.kind, found.identity, Condition.GONE)
    context.journal.forget(cluster, found.key, found.identity)
    context.note(cluster, found.key, "gone")


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One `apply` under way."""

    cluster: str
    context: Context
    settle_s: float
    identities: dict[str, str] = field(default_factory=dict)  # of what is ready, by key
    renewed: set[str] = field(default_factory=set)  # keys of what was replaced, or went with what was
    useless: list[Observed] = field(default_factory=list)  # what is left of candidates that could not be had

    def converge(self, action: Action) -> None:
        """Bring one resource to what is asked for."""
        resource = action.resource
        if resource is None:
            raise AssertionError(f"{action.key}: only resources that should exist are converged")
        is_moved = not self.renewed.isdisjoint(resource.needs)
        if is_moved:
            action = look_again(resource, self.context)
        if action.step is Step.REPLACE or (is_moved and action.step is Step.CREATE):
            self.renewed.add(action.key)
        if resource.candidates:
            self.identities[action.key] = self._choose(resource, action)
        else:
            self.identities[action.key] = self._converge_one(resource, action)

    def _choose(self, choice: Resource, action: Action) -> str:
        """Take the candidate that exists, or try one after the other; each one's reason is told."""
        if action.candidate is not None and action.step in {Step.KEEP, Step.CHANGE}:
            try:
                return self._converge_one(action.candidate, action)
            except UnavailableError as error:
                refused = {action.candidate.key: error.message}
                self._give_up(action.candidate, error.message)
        else:
            refused = {}
            if action.observed is not None:  # what is left of an attempt that failed
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
        for observed in self.useless:
            remove(self.cluster, observed, self.context)
        self.useless.clear()
        raise NoCapacityError(
            f"{choice.key}: none of {len(refused)} candidates can be had; all else is kept:{tried}",
            remedy="`cloudrec up` again goes on from here; allow other instance types or zones, or "
            "on-demand beside spot; `cloudrec down` removes what is there",
        )

    def _give_up(self, candidate: Resource, reason: str) -> None:
        """Note why a candidate could not be had; its remains go once another is there."""
        self.context.note(self.cluster, candidate.key, "unavailable", reason)
        driver = self.context.drivers[candidate.kind]
        observed = self.context.call(driver, partial(driver.find, candidate))
        if observed is not None:
            self.useless.append(observed)
        else:
            self.context.journal.forget(self.cluster, candidate.key)

    def _converge_one(self, resource: Resource, action: Action) -> str:
        observed = action.observed
        if observed is None:
            return self._create(resource)
        if action.step is Step.REPLACE:
            self.context.note(self.cluster, resource.key, "replacing", action.reason)
            remove(self.cluster, observed, self.context)
            return self._create(resource)
        if action.step is Step.KEEP:
            self._adopt(resource, observed.identity)
            return observed.identity
        return self._finish(resource, observed)

    def _create(self, resource: Resource) -> str:
        context, driver = self.context, self.context.drivers[resource.kind]
        if not resource.is_shared:
            context.journal.intend(self.cluster, resource)
        context.report(resource.key, "creating")
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
        """Know what is the cluster's own, whoever made it."""
        if not resource.is_shared:
            self.context.journal.adopt(self.cluster, resource, identity)

    def _await_ready(self, resource: Resource, identity: str) -> None:
        context, driver = self.context, self.context.drivers[resource.kind]
        note_operation(self.cluster, resource.key, identity, context, driver)
        context.await_condition(driver, resource.kind, identity, Condition.READY)
        note_operation(self.cluster, resource.key, identity, context, driver)

    def _finish(self, resource: Resource, observed: Observed) -> str:
        """Complete what exists: wait until it is there, then change what differs."""
        context, driver = self.context, self.context.drivers[resource.kind]
        self._adopt(resource, observed.identity)
        if observed.condition is not Condition.READY:
            self._await_ready(resource, observed.identity)
            observed = context.call(driver, partial(driver.find, resource)) or observed
        difference = driver.difference(resource, observed)
        if difference is not None and not difference.in_place:
            context.note(self.cluster, resource.key, "replacing", difference.reason)
            remove(self.cluster, observed, context)
            return self._create(resource)
        if difference is not None:
            context.note(self.cluster, resource.key, "changing", difference.reason)
            change = partial(driver.change, resource, observed, identities=dict(self.identities))
            context.call(driver, change)
            self._await_ready(resource, observed.identity)
        context.note(self.cluster, resource.key, "ready")
        return observed.identity


@dataclass
class _Attempts:
    """Makes one thing once, though an answer may be lost: a second attempt looks for the first's."""

    work: _Work
    resource: Resource
    driver: Driver
    token: str
    identity: str = ""
    found: Observed | None = None
    doubtful: bool = False  # whether an attempt may have had its effect

    def make(self) -> None:
        """Create, or find what an earlier attempt created."""
        if self.doubtful:
            self.found = self.driver.find(self.resource)
            if self.found is None:
                self.work.context.clock.sleep(self.work.settle_s)
                self.found = self.driver.find(self.resource)
            if self.found is not None:
                return
        identities = self.work.identities
        try:
            self.identity = self.driver.create(self.resource, token=self.token, identities=dict(identities))
        except Exception as error:
            self.doubtful |= self.driver.verdict(error) is Verdict.LOST
            raise


def note_operation(cluster: str, key: str, identity: str, context: Context, driver: Driver) -> None:
    """Write down what is under way on a thing, where its cloud tells."""
    if isinstance(driver, Resumable):
        context.journal.operate(cluster, key, driver.operation(identity))


def raise_first(failed: Mapping[str, Exception]) -> None:
    """Raise the first failure, with the others told beside it."""
    (key, first), *others = failed.items()
    also = "".join(f"\nalso: {other}: {error}" for other, error in others)
    if isinstance(first, CloudrecError):
        named = first.message if key in first.message else f"{key}: {first.message}"
        raise type(first)(f"{named}{also}", remedy=first.remedy) from first
    raise CloudrecError(f"{key}: {type(first).__name__}: {first}{also}") from first
