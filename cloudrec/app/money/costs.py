"""What clusters have cost: the guard's ledgers, read from the clusters and kept after their removal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.app.readiness import BRIEFLY_S
from cloudrec.app.records import known_clusters
from cloudrec.errors import CloudrecError, DataError, UsageError
from cloudrec.home import make_private, write_atomically
from cloudrec.keeper.census import live_nodes
from cloudrec.keeper.guard import METER, NAME, NOTE, Note
from cloudrec.keeper.meter import CostLedger, CostRow, advance
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.app.records import KnownCluster
    from cloudrec.keeper.meter import Tariff

_FOLDER = "costs"


@dataclass(frozen=True, kw_only=True)
class ClusterCost:
    """The metered cost of one cluster.

    Attributes:
        cluster: its name.
        provider: its provider.
        owner: its owner.
        created: its creation in seconds since the epoch; None if unknown.
        ledger: what was metered; None if nothing was.
        problem: why the ledger is missing or older than now; empty if it is up to date or final.
        is_removed: whether the cluster was removed.
    """

    cluster: str
    provider: str
    owner: str
    created: float | None
    ledger: CostLedger | None
    problem: str = ""
    is_removed: bool = False

    @property
    def rows(self) -> Sequence[CostRow]:
        """The ledger's rows; none without a ledger."""
        return self.ledger.rows if self.ledger is not None else ()


def costs(app: AppContext, name: str | None = None) -> list[ClusterCost]:
    """Return the costs of all clusters of this home, those removed included, or of the ones of a name.

    Raises:
        UsageError: there is no cluster of this name.
    """
    known = [_of_known(app, each) for each in known_clusters(app, name=name)]
    alive = {(each.cluster, each.created) for each in known}
    kept = [
        each
        for each in _kept(app)
        if name in {None, each.cluster} and (each.cluster, each.created) not in alive
    ]
    if name is not None and not known and not kept:
        raise UsageError(
            f"no cluster {name!r} is known here", remedy="`cloudrec cost` lists the costs of all clusters"
        )
    return sorted((*known, *kept), key=lambda each: (each.created or 0.0, each.cluster))


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
            _keep(self.app, replace(self.cost, ledger=last, is_removed=True, problem=""))


def final_reading(app: AppContext, name: str) -> FinalReading | None:
    """Read a cluster's meter before its removal, and keep the costs; None without a record or a meter."""
    for known in known_clusters(app, name=name):
        try:
            reading = _read(app, known)
        except CloudrecError as error:
            app.report(f"the cost up to now is not read: {error.message}")
            return None
        if reading is not None:
            cost = replace(_unread(known), ledger=reading[0])
            _keep(app, cost)
            return FinalReading(app=app, cost=cost, tariffs=reading[1])
    return None


def spent_usd(app: AppContext, name: str) -> float | None:
    """Return what a cluster has cost so far, in USD; None if its meter cannot be read."""
    for known in known_clusters(app, name=name):
        try:
            reading = _read(app, known)
        except CloudrecError:
            return None
        return reading[0].usd if reading is not None else None
    return None


def _of_known(app: AppContext, known: KnownCluster) -> ClusterCost:
    """Return the cost of a cluster of the journal: from its API server, or else as it was read last."""
    cost = _unread(known)
    before = next((each for each in _kept(app) if _file(app, each) == _file(app, cost)), None)
    if known.record.is_down and before is not None:
        return before
    try:
        reading = _read(app, known)
    except CloudrecError as error:
        why = f"the meter cannot be read: {error.message}"
        return replace(before or cost, problem=f"as read last; {why}" if before else why)
    if reading is None:
        return replace(cost, problem="not metered: it has no guard, or the guard has not made a round yet")
    cost = replace(cost, ledger=reading[0])
    _keep(app, cost)
    return cost


def _unread(known: KnownCluster) -> ClusterCost:
    return ClusterCost(
        cluster=known.record.name,
        provider=known.record.provider,
        owner=known.cluster.owner,
        created=known.record.created,
        ledger=None,
    )


def _read(app: AppContext, known: KnownCluster) -> tuple[CostLedger, tuple[Tariff, ...]] | None:
    """Return the ledger up to now and the prices; None if the cluster has no meter."""
    access = app.provider(known.record.provider).access(known.cluster)
    if not isinstance(access, KubernetesAccess):
        return None
    namespace = access.target.namespace
    with Kube.connect(access.target, patience_s=BRIEFLY_S) as kube:
        found = kube.get("ConfigMap", NAME, namespace=namespace)
        data = (found or {}).get("data") or {}
        if METER not in data:
            return None
        note, ledger = Note.of(data.get(NOTE, "")), CostLedger.of(data[METER])
        nodes = live_nodes(kube, namespace, note.pool_label)
    return advance(ledger, nodes, note.tariffs, app.now().timestamp()), note.tariffs


def _file(app: AppContext, cost: ClusterCost) -> Path:
    return app.home.root / _FOLDER / f"{cost.cluster}-{int(cost.created or 0)}.json"


def _keep(app: AppContext, cost: ClusterCost) -> None:
    """Write what was read, for the time after the cluster's removal."""
    path = _file(app, cost)
    make_private(path.parent)
    document = {**asdict(cost), "ledger": json.loads(cost.ledger.to_json()) if cost.ledger else None}
    write_atomically(path, json.dumps(document))


def _kept(app: AppContext) -> list[ClusterCost]:
    """Return the costs in files; an unreadable one has a problem."""
    folder = app.home.root / _FOLDER
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        name = path.stem.rpartition("-")[0]
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            ledger = document.pop("ledger")
            cost = ClusterCost(
                **document, ledger=CostLedger.of(json.dumps(ledger)) if ledger is not None else None
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, DataError) as error:
            cost = ClusterCost(
                cluster=name,
                provider="",
                owner="",
                created=None,
                ledger=None,
                problem=f"{path} cannot be read: {error}",
            )
        found.append(cost)
    return found
