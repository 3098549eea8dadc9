"""What the first page shows: the clusters, and one page of the runs, filtered and sorted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import total
from cloudrec.launchers.base.ledger import RunState
from cloudrec.observe.goodput import Goodput
from cloudrec.observe.page.charts import Dot, dot_chart
from cloudrec.observe.page.details import Figure, GoodputPart, goodput_parts
from cloudrec.observe.page.human import UNKNOWN, usd, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.app.lifecycle import ClusterView
    from cloudrec.app.live.cluster_watch import ClustersNow
    from cloudrec.app.live.index import RunIndex
    from cloudrec.engine.graph import Observed
    from cloudrec.observe.page.charts import Chart
    from cloudrec.observe.runs import RunView

PAGE = 50  # runs
_DOTS = 1000
_DIGITS = 6
_SORTS: Mapping[str, Callable[[RunView], float | None]] = {
    "auc": lambda view: view.auc,
    "loss": lambda view: None if view.loss is None else -view.loss,
    "rate": lambda view: view.samples_per_s,
    "goodput": lambda view: view.goodput,
    "cost": lambda view: view.cost_usd,
    "time": lambda view: view.wall_s,
}


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Which runs a page shows: a part of their name or cluster, their state, their order, and the page."""

    text: str = ""
    state: str = ""
    sort: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> RunFilter:
        """Return the wish of an address; what is not valid is left out."""
        state, sort = query.get("state", ""), query.get("sort", "")
        return cls(
            text=query.get("q", "").strip()[:100],
            state=state if state in set(RunState) else "",
            sort=sort if sort in _SORTS else "",
            page=max(whole_number(query.get("page", "1")), 1),
        )

    def query(self, **changed: object) -> dict[str, str]:
        """Return the parameters of the address of this wish, with some changed."""
        names = {"q": self.text, "state": self.state, "sort": self.sort, "page": self.page, **changed}
        return {name: str(value) for name, value in names.items() if value not in ("", 1)}


def whole_number(text: str) -> int:
    """Return the number that an address names; 0 for what is none, or is too large to be meant."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run in the table: its state, and its time by use."""

    view: RunView
    goodput: Sequence[GoodputPart]

    @property
    def progress(self) -> float | None:
        """The share of its steps that are done; None if that is not known."""
        view = self.view
        return min(view.step / view.total_steps, 1.0) if view.step is not None and view.total_steps else None


def home_values(index: RunIndex, now: ClustersNow, wish: RunFilter) -> dict[str, Any]:
    """Return the values of the first page."""
    folders = index.folders()
    named = [run for run in folders if wish.text.casefold() in run.name.casefold()]
    if wish.state or wish.sort:
        views = _sorted(
            [view for view in index.views(named) if wish.state in ("", view.state)], _SORTS.get(wish.sort)
        )
        shown, count = _page(views, wish.page), len(views)
    else:
        count = len(named)
        shown = index.views(_page(named, wish.page))
    known = index.known()
    charts = _charts(list(known.values()))
    pages = max((count + PAGE - 1) // PAGE, 1)
    return {
        "now": now,
        "figures": _figures(now.clusters, known, len(folders), is_asked=now.at is not None),
        "rows": [_row(view) for view in shown],
        "wish": wish,
        "count": count,
        "total": len(folders),
        "pages": pages,
        "states": list(RunState),
        "charts": charts,
        "unpriced": bool(known) and all(chart.key != "cost-auc" for chart in charts),
        "time": time.time(),
    }


def _page(things: Sequence[Any], page: int) -> Sequence[Any]:
    return things[(page - 1) * PAGE : page * PAGE]


def _sorted(views: list[RunView], key: Callable[[RunView], float | None] | None) -> list[RunView]:
    """Return runs in descending order; those without a value are last."""
    if key is None:
        return views
    return sorted(views, key=lambda view: (key(view) is None, -(key(view) or 0.0)))


def _row(view: RunView) -> RunRow:
    parts = view.goodput_parts
    goodput = Goodput(fraction=view.goodput or 0.0, parts=parts) if parts else None
    return RunRow(view=view, goodput=goodput_parts(goodput))


def _figures(
    clusters: Sequence[ClusterView], known: Mapping[str, RunView], runs: int, *, is_asked: bool
) -> list[Figure]:
    asking = "" if is_asked else "the clouds are being asked"
    hourly = total(*(cluster.cost.usd for cluster in clusters)) if is_asked else None
    spent = total(*(spent_of(cluster) for cluster in clusters)) if is_asked else None
    by_state = [view.state for view in known.values()]
    alive = sum(not state.is_final for state in by_state)
    failed = by_state.count(RunState.FAILED)
    counting = "" if len(known) >= runs else f"{whole(runs - len(known))} not read yet"
    unpriced = [cluster.name for cluster in clusters if cluster.cost.unknown]
    return [
        Figure(
            name="Costs now",
            value=UNKNOWN if hourly is None else f"{usd(hourly)}/h",
            note=asking or (f"no price for a part of {', '.join(unpriced[:3])}" if unpriced else ""),
        ),
        Figure(name="Spent so far", value=usd(spent), note=asking or "clusters that are up"),
        Figure(name="Clusters", value=whole(len(clusters)) if is_asked else UNKNOWN, note=asking),
        Figure(name="Running", value=whole(alive), note=counting),
        Figure(name="Failed", value=whole(failed), note=counting),
        Figure(name="Runs", value=whole(runs)),
    ]


def spent_of(cluster: ClusterView) -> float | None:
    """Return what a cluster has cost so far: nothing, if all of it is free, though nothing meters it."""
    if cluster.spent_usd is None and cluster.cost.usd == 0.0:
        return 0.0
    return cluster.spent_usd


def by_price(resources: Sequence[Observed]) -> list[Observed]:
    """Return resources, the dearest first; one without a known price comes before all others."""
    return sorted(resources, key=lambda seen: (seen.hourly_usd is not None, -(seen.hourly_usd or 0.0)))


def _charts(views: Sequence[RunView]) -> list[Chart]:
    """Return the charts of AUC against cost and time, as far as they have runs."""
    scored = [(view, view.auc) for view in views if view.auc is not None and view.wall_s > 0][:_DOTS]
    paid = [Dot(label=view.name, x=view.cost_usd, y=auc) for view, auc in scored if view.cost_usd is not None]
    timed = [Dot(label=view.name, x=view.wall_s, y=auc) for view, auc in scored]
    charts = (
        dot_chart("cost-auc", "AUC against cost", paid, x_title="Cost", y_title="AUC", x_unit="$"),
        dot_chart("time-auc", "AUC against time", timed, x_title="Time, s", y_title="AUC"),
    )
    return [chart for chart in charts if chart is not None]
