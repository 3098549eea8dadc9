"""What the page of several runs shows: their curves, their figures, and what differs in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, DataError, UsageError
from cloudrec.launchers.base import outputs
from cloudrec.observe.metrics import finite
from cloudrec.observe.page.charts import line_chart
from cloudrec.observe.page.details import flat
from cloudrec.observe.page.human import NONE, duration, percent, short, usd, whole
from cloudrec.observe.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.live.index import RunIndex
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.observe.runs import RunView

MOST = 8
_CURVES = (
    ("loss", "Training loss", "loss", False),
    ("auc", "AUC on held-out rows", "auc", False),
    ("throughput", "Throughput, samples/s", "samples_per_s", True),
    ("goodput", "Goodput so far", "goodput", True),
)


def compare_values(app: AppContext, index: RunIndex, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the page; UsageError if there is no such run, or too few or many are named."""
    names = list(dict.fromkeys(names))
    if not 1 < len(names) <= MOST:
        raise UsageError(
            f"{len(names)} runs are chosen; 2 to {MOST} can be compared",
            remedy="choose them on the first page",
        )
    runs = [find_run(app.home.runs, name) for name in names]
    views = index.views(runs)
    lines = [_lines(index, run) for run in runs]
    charts = [
        line_chart(
            key,
            title,
            [(run.name, each.get(curve, [])) for run, each in zip(runs, lines, strict=True)],
            from_zero=from_zero,
        )
        for key, title, curve, from_zero in _CURVES
    ]
    settings = [_settings(run) for run in runs]
    return {
        "views": views,
        "charts": [chart for chart in charts if chart is not None],
        "figures": _figures(runs, views),
        "differences": _differences(settings),
    }


def _lines(index: RunIndex, run: RunFolder) -> dict[str, Any]:
    file, lock = index.curves(run)
    with lock:
        try:
            curves = file.read()
        except DataError:
            return {}
        return {curve: curves.lines(curve) for _, _, curve, _ in _CURVES}


def _figures(runs: Sequence[RunFolder], views: Sequence[RunView]) -> dict[str, list[str]]:
    summaries = [outputs.read_summary(run) for run in runs]
    scores = [finite(each.get("logloss")) for each in summaries]
    return {
        "AUC": [short(view.auc) for view in views],
        "Logloss": [short(score) for score in scores],
        "Loss": [short(view.loss) for view in views],
        "Steps": [whole(view.step) for view in views],
        "Samples/s": [whole(view.samples_per_s) for view in views],
        "Goodput": [percent(view.goodput) for view in views],
        "Ranks": [whole(view.world_size) for view in views],
        "Restarts": [whole(view.restarts) for view in views],
        "Preemptions": [whole(view.preemptions) for view in views],
        "Time": [duration(view.wall_s) for view in views],
        "Cost": [usd(view.cost_usd) for view in views],
    }


def _settings(run: RunFolder) -> dict[str, str]:
    try:
        spec = run.spec()
    except CloudrecError:
        return {}
    own = {"cluster": spec.cluster, "nodes": spec.nodes, "processes of a node": spec.nproc_per_node}
    return flat({**spec.trainer.values, **own})


def _differences(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the settings that are not equal in all runs."""
    names = dict.fromkeys(name for each in settings for name in each)
    rows = {name: [each.get(name, NONE) for each in settings] for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}
