"""What the keeper of a managed cluster does: its run, the runs that wait, the pools, and its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.app.managed.notes import keeper_notes
from cloudrec.app.records import known_clusters
from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.record import MANAGED, ManagedRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.records import KnownCluster
    from cloudrec.keeper.managed.record import KeeperEvent


@dataclass(frozen=True, kw_only=True)
class KeptRunView:
    """A run that has its turn.

    Attributes:
        name: its name.
        pools: the pools that are for it.
        has_nodes: whether one of them has all its nodes.
        reason: what it has or waits for, in one line; empty before the first decision.
    """

    name: str
    pools: Sequence[str]
    has_nodes: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class KeeperView:
    """The keeper of one cluster.

    Attributes:
        cluster: the cluster's name.
        at: its last round, in seconds since the epoch; None before the first.
        runs: the runs that have their turn, in the order of their submission.
        queue: the runs that wait for theirs, in the order of their turn.
        elsewhere: the runs that are in clusters of other regions, each with its cluster.
        pools: the number of nodes that it asked for, by pool; -1 if it is not known now.
        complete: the pools that have all their nodes.
        events: what it did and why, the oldest first.
    """

    cluster: str
    at: float | None
    runs: Sequence[KeptRunView]
    queue: Sequence[str]
    elsewhere: Mapping[str, str]
    pools: Mapping[str, int]
    complete: Sequence[str]
    events: Sequence[KeeperEvent]


def keeper_view(app: AppContext, known: KnownCluster) -> KeeperView | None:
    """Return what the keeper of a cluster does; None if it has none, or cannot be read now."""
    if not known.cluster.managed:
        return None
    try:
        record = ManagedRecord.of(keeper_notes(app, known).get(MANAGED, ""))
    except CloudrecError as error:
        app.report(f"the keeper of {known.record.name} cannot be read: {error.message}")
        return None
    return view_of(known.record.name, record)


def view_of(cluster: str, record: ManagedRecord) -> KeeperView:
    """Return what the record of a cluster's keeper says."""
    return KeeperView(
        cluster=cluster,
        at=record.at or None,
        runs=[
            KeptRunView(
                name=name,
                pools=tuple(pool for pool in record.asked if record.owner.get(pool) == name),
                has_nodes=any(record.owner.get(pool) == name for pool in record.complete),
                reason=kept.reason,
            )
            for name, kept in record.runs.items()
        ],
        queue=record.queue,
        elsewhere={
            name: turn.cluster
            for name, turn in record.turns.items()
            if turn.cluster != cluster and not turn.ended
        },
        pools=dict(record.asked),
        complete=tuple(record.complete),
        events=record.events,
    )


def keepers(app: AppContext, name: str | None = None) -> list[KeeperView]:
    """Return the keepers of all managed clusters, or of the one named."""
    found = (keeper_view(app, known) for known in known_clusters(app, name=name))
    return [view for view in found if view is not None]
