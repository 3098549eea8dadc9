"""One HTML page about a run, with figures, curves, events and configuration. It loads no other file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from cloudrec.home import write_atomically
from cloudrec.launchers.base import outputs
from cloudrec.observe.charts import Chart, line_chart, short, stacked_chart
from cloudrec.observe.metrics import Series, finite, read_records
from cloudrec.observe.runs import RunView, view_run
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder

_TEMPLATE = "report.html.j2"
_EVENTS_SHOWN = 200
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number at the head of the page."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One event on the page's time line."""

    when: str
    after: str
    event: str
    tone: str
    text: str


def write_report(run: RunFolder, path: Path, *, cost_usd: float | None = None) -> Path:
    """Write the page about a run's present state; StorageError if the disk refuses. See `render_report`."""
    write_atomically(path, render_report(run, cost_usd=cost_usd))
    return path


def render_report(run: RunFolder, *, cost_usd: float | None = None) -> str:
    """Return the page about a run's present state: running, failed or finished.

    Args:
        run: the run's folder.
        cost_usd: what it has cost, in USD; None if that is unknown.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only this command needs it

    view, spec = view_run(run), run.spec()
    events = run.ledger.read()
    source = resources.files("templates").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    # Names, causes and settings come from users and logs, so every value is escaped.
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return template.from_string(source).render(
        view=view,
        figures=[*_figures(view, outputs.read_summary(run)), *_cost(cost_usd)],
        charts=_charts(read_records(run.metrics_file)),
        moments=_moments(events),
        facts=_facts(view),
        summary=_flat(outputs.read_summary(run)),
        configuration=_flat(dict(spec.trainer_config)),
        flags=" ".join(spec.trainer_flags),
        version=__version__,
        made=_clock(datetime.now(UTC).timestamp()),
    )


def duration(seconds: float) -> str:
    """Return seconds as readable text: 42.0 s, 3 min 05 s, 2 h 10 min."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min {int(seconds) % _MINUTE:02d} s"
    return f"{int(seconds) // _HOUR} h {int(seconds) % _HOUR // _MINUTE:02d} min"


def _figures(view: RunView, summary: dict[str, Any]) -> list[Figure]:
    """Return the numbers at the head of the page: from the trainer's summary, else from the metrics."""
    numbers = {
        "AUC": (finite(summary.get("auc")), view.auc),
        "Logloss": (finite(summary.get("logloss")), None),
        "Normalized entropy": (finite(summary.get("ne")), None),
        **_of_tasks(summary),
        "Training loss": (view.loss, None),
        "Samples/s": (finite(summary.get("samples_per_s")), view.samples_per_s),
        "Goodput": (view.goodput, finite(summary.get("goodput"))),
        "Step": (view.step, None),
        "Steps to do": (view.total_steps, None),
        "Checkpoint at step": (view.checkpoint, None),
        "Restarts": (view.restarts, None),
    }
    known = {name: first if first is not None else second for name, (first, second) in numbers.items()}
    figures = [Figure(name=name, value=_shown(value)) for name, value in known.items() if value is not None]
    return [*figures, Figure(name="Wall time", value=duration(view.wall_s))]


def _of_tasks(summary: dict[str, Any]) -> dict[str, tuple[float | None, None]]:
    """Return the AUC and the logloss of each of several labels; those above are their means."""
    tasks = summary.get("tasks")
    found: dict[str, tuple[float | None, None]] = {}
    for task, metrics in tasks.items() if isinstance(tasks, dict) else ():
        if isinstance(metrics, dict):
            found[f"AUC of {task}"] = (finite(metrics.get("auc")), None)
            found[f"Logloss of {task}"] = (finite(metrics.get("logloss")), None)
    return found


def _cost(usd: float | None) -> list[Figure]:
    return [] if usd is None else [Figure(name="Cost", value=f"${usd:,.2f}")]


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else short(value)


def _charts(records: Iterable[dict[str, Any]]) -> list[Chart]:
    loss, auc, throughput = Series(), Series(), Series()
    parts = {"work": Series(), "waiting for data": Series(), "checkpoint": Series()}
    restarts: list[float] = []
    for record in records:
        step = finite(record.get("step"))
        if record.get("kind") == "start" and (resumed := finite(record.get("resumed_from"))) is not None:
            restarts.append(resumed)
        if step is None:
            continue
        if record.get("kind") == "train":
            _add(loss, step, record.get("loss"))
            _add(throughput, step, record.get("samples_per_s"))
            _add_parts(parts, step, record)
        elif record.get("kind") == "eval":
            _add(auc, step, record.get("auc"))
    split = [(name, _joined(series)) for name, series in parts.items()]
    charts = (
        line_chart("Training loss", loss.finished(), unit="", restarts=restarts),
        line_chart("AUC on held-out rows", auc.finished(), unit="", restarts=restarts),
        line_chart("Throughput", throughput.finished(), unit="samples/s", restarts=restarts, from_zero=True),
        stacked_chart("Where a step's time goes", split, unit="ms", restarts=restarts),
    )
    return [chart for chart in charts if chart is not None]


def _add(series: Series, step: float, value: object) -> None:
    number = finite(value)
    if number is not None:
        series.add(step, number)


def _add_parts(parts: dict[str, Series], step: float, record: dict[str, Any]) -> None:
    """Add a step's times in ms: work, waiting for data, and the stall of a checkpoint."""
    # `step_s` includes the wait for data, but not the stall of a checkpoint.
    total = finite(record.get("step_s"))
    if total is None:
        return
    data = finite(record.get("data_wait_s")) or 0.0
    checkpoint = finite(record.get("ckpt_stall_s")) or 0.0
    parts["work"].add(step, max(total - data, 0.0) * 1000)
    parts["waiting for data"].add(step, data * 1000)
    parts["checkpoint"].add(step, checkpoint * 1000)


def _joined(series: Series) -> list[tuple[float, float]]:
    """Return a curve in the order of its steps; after a resume, the later value of a step counts."""
    by_step = {step: value for line in series.finished() for step, value in line}
    return sorted(by_step.items())


def _moments(events: Sequence[LedgerEvent]) -> list[Moment]:
    shown = [event for event in events if not _is_routine(event)][-_EVENTS_SHOWN:]
    first = events[0].time if events else 0.0
    return [
        Moment(
            when=_clock(event.time),
            after=f"+{duration(event.time - first)}",
            event=event.event.replace("_", " "),
            tone=_tone(event),
            text=_event_text(event),
        )
        for event in shown
    ]


def _is_routine(event: LedgerEvent) -> bool:
    return event.event == "rank_started" or (
        event.event == "rank_ended" and event.details.get("exit_code") == 0
    )


def _tone(event: LedgerEvent) -> str:
    tones = {"succeeded": "good", "failed": "bad", "rank_ended": "warn", "restarting": "warn"}
    return tones.get(event.event, "warn" if event.event in ("interrupted", "stop_requested") else "plain")


def _event_text(event: LedgerEvent) -> str:
    details = event.details
    if event.event == "rank_ended":
        attempt = f"rank {details.get('rank')}, attempt {details.get('attempt')}"
        return f"{attempt}: exit code {details.get('exit_code')}"
    if cause := details.get("cause"):
        return str(cause)
    known = {"pid": "process", "grace_s": "grace in seconds", "attempt": "attempt", "launcher": "launcher"}
    facts = [f"{words} {details[key]}" for key, words in known.items() if details.get(key) is not None]
    return ", ".join([f"launch {event.launch}", *facts])


def _facts(view: RunView) -> dict[str, str]:
    return {
        "Cluster": f"{view.cluster} ({view.provider})",
        "Launcher": str(view.launcher),
        "Ranks": str(view.world_size),
        "Launches": str(view.launches),
        "Submitted": _clock(view.created),
        "Ended": _clock(view.ended),
    }


def _clock(moment: float | None) -> str:
    return "-" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested document as a flat one, with dotted keys and readable values."""
    flat: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat
