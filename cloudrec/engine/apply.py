"""Plan and apply: from what exists to what should, in the fewest calls and the shortest time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import NAMESPACE_URL, uuid5

import stamina

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Graph, Verdict
from cloudrec.engine.walk import walk
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.engine.journal import Journal

T = TypeVar("T")
_ATTEMPTS = 6  # of a call whose driver says that it may be made again


class Step(Enum):
    """What has to be done with one resource."""

    CREATE = "create"
    KEEP = "keep"
    CHANGE = "change"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One line of a plan: what is done with one resource, and why."""

    step: Step
    key: str
    reason: str
    hourly_usd: float = 0.0
    resource: Resource | None = None
    observed: Observed | None = None


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


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the engine works with: the journal, the drivers by kind, and the clock."""

    journal: Journal
    drivers: Mapping[str, Driver]
    report: Callable[[str, str], None] = field(default=lambda _key, _event: None)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    poll_s: float = 1.0

    def note(self, cluster: str, key: str, event: str, detail: str = "") -> None:
        """Write an event down and tell whoever watches."""
        self.journal.note(cluster, key, event, detail)
        self.report(key, event)

    def call(self, driver: Driver, work: Callable[[], T]) -> T:
        """Make a call of a driver, again with back-off and jitter while the driver says that it may be."""
        for attempt in stamina.retry_context(
            on=lambda error: driver.verdict(error) is Verdict.RETRY, attempts=_ATTEMPTS, timeout=None
        ):
            with attempt:
                return work()
        raise AssertionError("stamina ends its loop by returning or raising")


def plan(cluster: str, graph: Graph, context: Context, existing: Sequence[Observed]) -> Plan:
    """Compare what should exist with what does; changes nothing.

    Args:
        cluster: the cluster's name.
        graph: what should exist.
        context: the drivers.
        existing: what a search by tag and the journal found of this cluster, for what must go.
    """
    actions = [_compare(graph.resources[key], context) for key in graph.order()]
    superfluous = {found.key: found for found in existing if found.key not in graph.resources}
    actions += [
        Action(step=Step.DELETE, key=key, reason="no longer asked for", observed=found)
        for key, found in superfluous.items()
    ]
    return Plan(cluster=cluster, actions=actions)


def _compare(resource: Resource, context: Context) -> Action:
    driver = context.drivers[resource.kind]
    observed = context.call(driver, partial(driver.find, resource))
    action = partial(
        Action, key=resource.key, resource=resource, observed=observed, hourly_usd=resource.hourly_usd
    )
    if observed is None:
        return action(step=Step.CREATE, reason="does not exist")
    if observed.cluster != resource.tags.get(TAG_CLUSTER):
        raise CloudrecError(
            f"{resource.key} exists and is not this cluster's (it says {observed.cluster or 'nobody'!r})",
            remedy="choose another cluster name with --cluster",
        )
    if observed.condition is Condition.FAILED:
        return action(step=Step.REPLACE, reason=f"failed: {observed.reason}")
    if observed.condition is Condition.PENDING:
        return action(step=Step.CHANGE, reason="still being created")
    difference = driver.difference(resource, observed)
    if difference is None:
        return action(step=Step.KEEP, reason="as asked for")
    return action(step=Step.CHANGE if difference.in_place else Step.REPLACE, reason=difference.reason)


def apply(plan: Plan, graph: Graph, context: Context) -> None:
    """Do what the plan says; CloudrecError names the first failure. Run again, it converges."""
    actions = {action.key: action for action in plan.actions if action.resource is not None}
    identities: dict[str, str] = {}

    def converge(key: str) -> None:
        identities[key] = _converge(plan.cluster, actions[key], context, identities)

    failed = walk(graph.needs(), converge, stop_at_failure=True)
    if failed:
        raise_first(failed)
    # Newest first: what was made later may need what was made before. Last of all, so that a failure
    # above removes nothing.
    for action in reversed([action for action in plan.actions if action.step is Step.DELETE]):
        if action.observed is not None:
            remove(plan.cluster, action.observed, context)


def remove(cluster: str, found: Observed, context: Context) -> None:
    """Delete one thing, wait until it is gone, and only then forget it."""
    driver = context.drivers[found.kind]
    if found.identity:  # an intent that no search found was never carried out: nothing is there to delete
        context.note(cluster, found.key, "deleting")
        context.call(driver, partial(driver.delete, found))
        await_condition(context, driver, found.kind, found.identity, Condition.GONE)
    context.journal.forget(cluster, found.key)
    context.note(cluster, found.key, "gone")


def _converge(cluster: str, action: Action, context: Context, identities: Mapping[str, str]) -> str:
    resource, observed = action.resource, action.observed
    if resource is None:
        raise AssertionError(f"{action.key}: only resources that should exist are converged")
    driver = context.drivers[resource.kind]
    if action.step is Step.REPLACE and observed is not None:
        context.note(cluster, resource.key, "deleting", action.reason)
        context.call(driver, partial(driver.delete, observed))
        await_condition(context, driver, observed.kind, observed.identity, Condition.GONE)
        observed = None
    context.journal.intend(cluster, resource)
    if observed is None:
        context.note(cluster, resource.key, "creating")
        token = str(uuid5(NAMESPACE_URL, f"cloudrec/{cluster}/{resource.key}"))
        create = partial(driver.create, resource, token=token, identities=dict(identities))
        identity = context.call(driver, create)
    else:
        identity = observed.identity
    context.journal.identify(cluster, resource.key, identity)
    if action.step is Step.CHANGE and observed is not None and observed.condition is Condition.READY:
        context.note(cluster, resource.key, "changing", action.reason)
        context.call(driver, partial(driver.change, resource, observed))
    if action.step is not Step.KEEP:
        await_condition(context, driver, resource.kind, identity, Condition.READY)
        context.note(cluster, resource.key, "ready")
    return identity


def await_condition(context: Context, driver: Driver, kind: str, identity: str, wanted: Condition) -> None:
    """Poll until the resource is as wanted; an error at its deadline, or when it failed."""
    deadline = context.now() + driver.deadline_s
    while True:
        condition, reason = context.call(driver, partial(driver.condition, kind, identity))
        if condition is wanted:
            return
        if wanted is Condition.READY and condition in {Condition.FAILED, Condition.GONE}:
            raise CloudrecError(f"{kind} {identity} {condition.value}: {reason}")
        if context.now() >= deadline:
            raise CloudrecError(
                f"{kind} {identity} is {condition.value}, not {wanted.value}, after {driver.deadline_s:.0f} s"
                + (f": {reason}" if reason else ""),
                remedy="run the command again: it goes on from here",
            )
        context.sleep(context.poll_s)


def raise_first(failed: Mapping[str, Exception]) -> None:
    """Raise the first failure, with the others told beside it."""
    (key, first), *others = failed.items()
    also = "".join(f"\nalso: {other}: {error}" for other, error in others)
    if isinstance(first, CloudrecError):
        raise type(first)(f"{first.message}{also}", remedy=first.remedy) from first
    raise CloudrecError(f"{key}: {type(first).__name__}: {first}{also}") from first
