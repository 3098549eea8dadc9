"""What was read of clusters' meters, in files: for the time after their removal, and for runs.

`status RUN` needs this module, so it imports neither a client of Kubernetes nor a cloud's SDK.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.engine.cost import total
from cloudrec.errors import DataError
from cloudrec.home import make_private, read_text, write_atomically
from cloudrec.keeper.meter import CostLedger, CostRow
from cloudrec.safe_path import check_part
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.observe.runs import RunView

_RECENT_S = 300.0  # the guard meters every two minutes


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
        is_read: whether the cluster's API server was asked just now, and answered.
        round_at: the last round of the guard or keeper then, in seconds since the epoch; None before the
            first one.
    """

    cluster: str
    provider: str
    owner: str
    created: float | None
    ledger: CostLedger | None
    problem: str = ""
    is_removed: bool = False
    is_read: bool = False
    round_at: float | None = None

    @property
    def rows(self) -> Sequence[CostRow]:
        """The ledger's rows; none without a ledger."""
        return self.ledger.rows if self.ledger is not None else ()


def metered_runs(app: AppContext, views: Sequence[RunView]) -> list[RunView]:
    """Return the runs with their metered costs, as the meters of their clusters were read last.

    A run whose nodes were not metered, or not read since, keeps its cost: the time times the price at its
    start.
    """
    found: dict[tuple[str, str], CostLedger] = {}
    for cost in sorted(kept_costs(app), key=lambda each: each.created or 0.0):
        if cost.ledger is not None:
            found |= {(cost.cluster, row.run): cost.ledger for row in cost.ledger.rows if row.run}
    now = app.now().timestamp()
    return [_metered(view, found, now) for view in views]


def _metered(view: RunView, ledgers: Mapping[tuple[str, str], CostLedger], now: float) -> RunView:
    """Return a run with the sum of what its nodes cost in each of its clusters."""
    last = view.ended if view.is_over and view.ended is not None else now
    ledger = ledgers.get((view.cluster or "", view.name))
    if ledger is None or ledger.at < last - _RECENT_S:
        return view
    others = (ledgers.get((cluster, view.name)) for cluster in view.elsewhere)
    rows = [row for each in (ledger, *others) if each is not None for row in each.rows]
    return replace(view, cost_usd=total(*(row.usd for row in rows if row.run == view.name)))


def file_of(app: AppContext, cost: ClusterCost) -> Path:
    """Return the file of a cluster's cost; a later cluster of the same name has another one."""
    return app.home.costs / f"{check_part(cost.cluster)}-{int(cost.created or 0)}.json"


def keep_cost(app: AppContext, cost: ClusterCost) -> None:
    """Write what was read, for the time after the cluster's removal."""
    path = file_of(app, cost)
    make_private(path.parent)
    ledger = json.loads(cost.ledger.to_json()) if cost.ledger else None  # noqa: TID251 - its own text
    document = {**asdict(cost), "is_read": False, "ledger": ledger}
    write_atomically(path, json.dumps(document))


def kept_costs(app: AppContext) -> list[ClusterCost]:
    """Return the costs in files; an unreadable one has a problem."""
    folder = app.home.costs
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        name = path.stem.rpartition("-")[0]
        try:
            document = safe_object(read_text(path))
            ledger = document.pop("ledger")
            cost = record_of(ClusterCost, {**document, "ledger": None})
            if ledger is not None:
                cost = replace(cost, ledger=CostLedger.of(json.dumps(ledger)))
        except (OSError, ValueError, KeyError, DataError) as error:
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
