"""What clusters have cost: the guard's ledgers, read from the clusters and kept after their removal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from cloudrec.app.money.kept import ClusterCost, file_of, keep_cost, kept_costs, metered_runs
from cloudrec.app.readiness import BRIEFLY_S
from cloudrec.app.records import known_clusters
from cloudrec.errors import CloudrecError, UsageError
from cloudrec.keeper.census import live_nodes
from cloudrec.keeper.meter import CostLedger, advance
from cloudrec.keeper.note import METER, NAME, NOTE, Note
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.wire import brief
from cloudrec.observe.runs import load_run
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from cloudrec.app.context import AppContext
    from cloudrec.app.records import KnownCluster
    from cloudrec.keeper.meter import Tariff


def costs(app: AppContext, name: str | None = None) -> list[ClusterCost]:
    """Return the costs of all clusters of this home, those removed included, or of the ones of a name.

    Raises:
        UsageError: there is no cluster of this name.
    """
    known = [cost_now(app, each) for each in known_clusters(app, name=name)]
    alive = {(each.cluster, each.created) for each in known}
    kept = [
        each
        for each in kept_costs(app)
        if name in {None, each.cluster} and (each.cluster, each.created) not in alive
    ]
    if name is not None and not known and not kept:
        raise UsageError(
            f"no cluster {name!r} is known here", remedy="`cloudrec cost` lists the costs of all clusters"
        )
    return sorted((*known, *kept), key=lambda each: (each.created or 0.0, each.cluster))


def run_cost(app: AppContext, name: str) -> float | None:
    """Return what a run has cost, in USD, after a reading of its cluster's meter; None if that is unknown."""
    view = load_run(app.home.runs, name)
    for known in known_clusters(app, name=view.cluster) if view.cluster else ():
        cost_now(app, known)  # which keeps what it has read
    return metered_runs(app, [view])[0].cost_usd


@dataclass(frozen=True, kw_only=True)
class FinalReading:
    """The last reading of a cluster's meter, around its removal; see `final_reading`.

    Attributes:
        app: the context of the use case.
        cost: what the meter showed before the removal.
        tariffs: the prices then.
    """

    app: AppContext
    cost: ClusterCost
    tariffs: tuple[Tariff, ...]

    def close(self) -> None:
        """Add the time of the removal. Its nodes ended at an unknown time in it, and count for half of it."""
        if self.cost.ledger is not None:
            last = advance(self.cost.ledger, (), self.tariffs, self.app.now().timestamp())
            keep_cost(self.app, replace(self.cost, ledger=last, is_removed=True, problem=""))


def final_reading(app: AppContext, name: str) -> FinalReading | None:
    """Read a cluster's meter before its removal, and keep the costs; None without a record or a meter."""
    for known in known_clusters(app, name=name):
        try:
            reading = _read(app, known)
        except CloudrecError as error:
            app.report(f"the cost up to now is not read: {error.message}")
            return None
        if reading is not None:
            cost = replace(_unread(known), ledger=reading.ledger, round_at=reading.round_at)
            keep_cost(app, cost)
            return FinalReading(app=app, cost=cost, tariffs=reading.tariffs)
    return None


def spent_usd(app: AppContext, name: str) -> float | None:
    """Return what a cluster has cost so far, in USD; None if its meter cannot be read."""
    for known in known_clusters(app, name=name):
        try:
            reading = _read(app, known)
        except CloudrecError:
            return None
        return reading.ledger.usd if reading is not None else None
    return None


def cost_now(app: AppContext, known: KnownCluster) -> ClusterCost:
    """Return the cost of a cluster of the journal: from its API server, or else as it was read last."""
    cost = _unread(known)
    before = next((each for each in kept_costs(app) if file_of(app, each) == file_of(app, cost)), None)
    if known.record.is_down and before is not None:
        return before
    try:
        reading = _read(app, known)
    except CloudrecError as error:
        why = f"the meter cannot be read: {error.message}"
        return replace(before or cost, problem=f"as read last; {why}" if before else why)
    if reading is None:
        why = "not metered: it has no guard, or the guard has not made a round yet"
        # A ledger that is gone, as with the guard's namespace, is still on this machine.
        problem = f"as read last; {why}" if before else why
        return replace(before or cost, problem=problem, is_read=_may_have_guard(app, known))
    cost = replace(cost, ledger=reading.ledger, round_at=reading.round_at, is_read=True)
    keep_cost(app, cost)
    return cost


def _may_have_guard(app: AppContext, known: KnownCluster) -> bool:
    """Return whether a cluster is one of Kubernetes: nothing runs in another, so nothing is silent there."""
    return isinstance(app.provider(known.record.provider).access(known.cluster), KubernetesAccess)


def _unread(known: KnownCluster) -> ClusterCost:
    return ClusterCost(
        cluster=known.record.name,
        provider=known.record.provider,
        owner=known.cluster.owner,
        created=known.record.created,
        ledger=None,
    )


class _Reading(NamedTuple):
    """What a cluster's meter shows.

    Attributes:
        ledger: up to now.
        tariffs: the prices.
        round_at: the time of the guard's last round.
    """

    ledger: CostLedger
    tariffs: tuple[Tariff, ...]
    round_at: float


def _read(app: AppContext, known: KnownCluster) -> _Reading | None:
    """Return what a cluster's meter shows; None if it has none."""
    access = app.provider(known.record.provider).access(known.cluster)
    if not isinstance(access, KubernetesAccess):
        return None
    namespace = access.target.namespace
    with brief(BRIEFLY_S), Kube.connect(access.target) as kube:
        found = kube.get("ConfigMap", NAME, namespace=namespace)
        data = (found or {}).get("data") or {}
        if METER not in data:
            return None
        note, ledger = Note.of(data.get(NOTE, "")), CostLedger.of(data[METER])
        nodes = live_nodes(kube, namespace, note.pool_label)
    now = advance(ledger, nodes, note.tariffs, app.now().timestamp())
    return _Reading(now, note.tariffs, ledger.at)
