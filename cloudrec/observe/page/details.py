"""Everything that the page of one run shows, read from its files once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.run_folder import committed_steps
from cloudrec.observe.goodput import newest_goodput
from cloudrec.observe.metrics import finite
from cloudrec.observe.page.charts import line_chart, stacked_chart
from cloudrec.observe.page.curves import CurvesFile, RunCurves, step_parts
from cloudrec.observe.page.dataset import read_dataset
from cloudrec.observe.page.events import Moment, moments
from cloudrec.observe.page.human import NONE, duration, percent, short, size, usd, whole
from cloudrec.observe.page.ranks import rank_views
from cloudrec.observe.page.sharding import read_sharding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.observe.goodput import Goodput
    from cloudrec.observe.page.charts import Chart
    from cloudrec.observe.page.dataset import DatasetView
    from cloudrec.observe.page.ranks import RankView
    from cloudrec.observe.page.sharding import ShardingView
    from cloudrec.observe.runs import RunView

_CHECKPOINTS_SHOWN = 60
_LONG = 10_000  # an integer that is read better with separators
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number at the head of a page, and what explains it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GoodputPart:
    """One part of a run's time: its name, its seconds, its share, and where its bar begins (from 0 to 1)."""

    name: str
    tone: int
    seconds: float
    share: float
    begins: float


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """One checkpoint that the trainer has reported, or that is on this machine's disk."""

    step: int
    time: float | None = None
    content: str = ""
    bytes: float | None = None
    write_s: float | None = None
    stall_s: float | None = None
    is_kept: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """The content of a run's page."""

    view: RunView
    figures: Sequence[Figure]
    charts: Sequence[Chart]
    goodput: Sequence[GoodputPart]
    ranks: Sequence[RankView]
    sharding: ShardingView | None
    dataset: DatasetView | None
    hardware: Mapping[str, str]
    checkpoints: Sequence[SavedCheckpoint]
    moments: Sequence[Moment]
    summary: Mapping[str, str]
    configuration: Mapping[str, str]
    flags: str


def run_details(
    run: RunFolder,
    view: RunView,
    *,
    metrics: CurvesFile | None = None,
    kept: Sequence[tuple[float, str]] = (),
) -> RunDetails:
    """Return the content of a run's page.

    Args:
        run: the run.
        view: its present state.
        metrics: its curves as an earlier call has read them; None to read all.
        kept: time and text of what the keeper of its cluster did with it.

    Raises:
        DataError: its spec is damaged.
    """
    spec, events = run.spec(), run.ledger.read()
    curves = _curves(metrics or CurvesFile(path=run.metrics_file))
    summary = outputs.read_summary(run)
    values = spec.trainer.values
    sharding = read_sharding(run.path, precision=values.get("embedding_weight_precision"))
    place = spec.trainer.dataset_path
    return RunDetails(
        view=view,
        figures=_figures(view, summary, curves),
        charts=run_charts(curves, cost=_cost_rate(view)),
        goodput=goodput_parts(newest_goodput(curves.train, summary)),
        ranks=rank_views(run, events, sharding, world_size=spec.world_size, is_over=view.is_over),
        sharding=sharding,
        dataset=read_dataset(place) if place else None,
        hardware=_hardware(spec, curves, summary),
        checkpoints=_checkpoints(run, spec, curves),
        moments=moments(events, kept),
        summary=flat(summary),
        configuration=flat(dict(spec.trainer_config)),
        flags=" ".join(spec.trainer_flags),
    )


def run_charts(curves: RunCurves, *, cost: float | None = None) -> list[Chart]:
    """Return the charts of a run that have values.

    Args:
        curves: what its metrics show.
        cost: USD for each second; None if that is not known.
    """
    restarts = curves.restarts
    tasks = [
        (name.removeprefix("auc of "), curves.lines(name)) for name in curves.curves if "auc of " in name
    ]
    memory = [[p._replace(value=p.value / 1e9) for p in line] for line in curves.lines("memory_bytes")]
    paid = [[p._replace(step=round(p.time * (cost or 0.0), 4)) for p in line] for line in curves.lines("auc")]
    charts = (
        line_chart("loss", "Training loss", [("loss", curves.lines("loss"))], restarts=restarts),
        line_chart("auc", "AUC on held-out rows", [("AUC", curves.lines("auc")), *tasks], restarts=restarts),
        line_chart(
            "throughput",
            "Throughput",
            [("samples/s", curves.lines("samples_per_s"))],
            restarts=restarts,
            from_zero=True,
        ),
        stacked_chart(
            "step-time", "Where a step's time goes", list(step_parts(curves)), unit="ms", restarts=restarts
        ),
        line_chart("goodput", "Goodput so far", [("goodput", curves.lines("goodput"))], from_zero=True),
        line_chart("memory", "Memory of rank 0", [("memory", memory)], unit="GB", from_zero=True),
        line_chart("auc-cost", "AUC against cost", [("AUC", paid)], unit="") if cost else None,
    )
    return [chart for chart in charts if chart is not None]


def goodput_parts(goodput: Goodput | None) -> list[GoodputPart]:
    """Return the parts of a run's time that are above 0, in the trainer's order."""
    if goodput is None or goodput.total_s <= 0:
        return []
    parts, begins = [], 0.0
    for number, (name, seconds) in enumerate(goodput.parts.items()):
        share = max(seconds, 0.0) / goodput.total_s
        if share > 0:
            words = name.removesuffix("_s").replace("_", " ")
            parts.append(
                GoodputPart(name=words, tone=number % 8 + 1, seconds=seconds, share=share, begins=begins)
            )
        begins += share
    return parts


def _curves(file: CurvesFile) -> RunCurves:
    try:
        return file.read()
    except DataError:  # the state says what is wrong with the file
        return RunCurves()


def _cost_rate(view: RunView) -> float | None:
    return view.cost_usd / view.wall_s if view.cost_usd and view.wall_s else None


def _figures(view: RunView, summary: dict[str, Any], curves: RunCurves) -> list[Figure]:
    """Return the numbers at the head: from the trainer's summary, else from the metrics."""
    auc = _first(finite(summary.get("auc")), view.auc)
    steps = f"of {whole(view.total_steps)}" if view.total_steps is not None else ""
    behind = view.step - view.checkpoint if view.checkpoint is not None and view.step is not None else None
    saved = "" if behind is None else f"{whole(behind)} steps ago" if behind > 0 else "the newest step"
    rate = _first(finite(summary.get("samples_per_s")), view.samples_per_s)
    figures = [
        Figure(name="Loss", value=short(view.loss), note="training"),
        Figure(name="AUC", value=short(auc), note="held-out rows"),
        *_scores(summary, curves),
        *_of_tasks(summary),
        Figure(name="Step", value=whole(view.step), note=steps),
        Figure(name="Samples/s", value=short(rate), note="all ranks"),
        Figure(name="Goodput", value=percent(_first(view.goodput, finite(summary.get("goodput"))))),
        Figure(name="Checkpoint", value=whole(view.checkpoint), note=saved),
        Figure(name="Restarts", value=whole(view.restarts), note=_times(view.preemptions, "preemption")),
        Figure(name="Time", value=duration(view.wall_s), note=_times(view.launches, "launch", "launches")),
        Figure(name="Cost", value=usd(view.cost_usd), note=_rate_note(view)),
    ]
    return [figure for figure in figures if figure.value != NONE]


def _scores(summary: dict[str, Any], curves: RunCurves) -> list[Figure]:
    names = {"logloss": "Logloss", "ne": "Normalized entropy"}
    found = {name: _first(finite(summary.get(key)), curves.newest(key)) for key, name in names.items()}
    return [Figure(name=name, value=short(value)) for name, value in found.items()]


def _of_tasks(summary: dict[str, Any]) -> list[Figure]:
    """Return the AUC and the logloss of each of several labels; those above are their means."""
    tasks, found = summary.get("tasks"), []
    for task, metrics in tasks.items() if isinstance(tasks, dict) else ():
        if isinstance(metrics, dict):
            found.append(Figure(name=f"AUC of {task}", value=short(finite(metrics.get("auc")))))
            found.append(Figure(name=f"Logloss of {task}", value=short(finite(metrics.get("logloss")))))
    return found


def _rate_note(view: RunView) -> str:
    rate = _cost_rate(view)
    return f"{usd(rate * 3600)}/h" if rate else "no price is known for its nodes"


def _times(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}" if count else ""


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _hardware(spec: RunSpec, curves: RunCurves, summary: dict[str, Any]) -> dict[str, str]:
    target = spec.target if isinstance(spec.target, ClusterTarget) else None
    gpus = target.resources.get(_GPU, "") if target else ""
    memory = finite(curves.train.get("memory_bytes"))
    versions = summary.get("versions")
    facts = {
        "Ranks": f"{whole(spec.world_size)} ({spec.nodes} x {spec.nproc_per_node})",
        "Device": str(curves.start.get("device") or ""),
        "Machine type": target.instance_type if target else "",
        "GPUs of a node": gpus,
        "Cores of a node": str(target.cpus) if target and target.cpus else "",
        "Memory of a node": f"{target.memory_gib} GiB" if target and target.memory_gib else "",
        "Fabric": target.fabric if target and target.fabric != "none" else "",
        "Memory of rank 0": size(memory) if memory is not None else "",
        "Image": spec.image,
        "Price": f"{usd(spec.hourly_usd)}/h" if spec.hourly_usd else "unknown",
        **{f"{name} version": str(text) for name, text in _pairs(versions)},
    }
    return {name: text for name, text in facts.items() if text}


def _pairs(value: object) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _checkpoints(run: RunFolder, spec: RunSpec, curves: RunCurves) -> list[SavedCheckpoint]:
    folder = outputs.checkpoint_folder(run, spec)
    kept = set(committed_steps(folder)) if folder else None
    found: dict[int, SavedCheckpoint] = {}
    for record in curves.checkpoints:
        step = int(finite(record.get("step")) or 0)
        found[step] = SavedCheckpoint(
            step=step,
            time=finite(record.get("time")),
            content=str(record.get("content") or ""),
            bytes=finite(record.get("bytes")),
            write_s=finite(record.get("write_s")),
            stall_s=finite(record.get("seconds")),
            is_kept=step in kept if kept is not None else None,
        )
    for step in kept or ():
        found.setdefault(step, SavedCheckpoint(step=step, is_kept=True))
    return [found[step] for step in sorted(found, reverse=True)][:_CHECKPOINTS_SHOWN]


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested document as a flat one, with dotted keys and readable values."""
    found: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            found.update(flat(value, f"{prefix}{key}."))
        elif isinstance(value, float):
            found[f"{prefix}{key}"] = f"{value:.6g}"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LONG:
            found[f"{prefix}{key}"] = f"{value:,}"
        elif value is None:
            found[f"{prefix}{key}"] = NONE
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return found
