"""Runs as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudrec.cli.output import columns, duration, fitted, listed
from cloudrec.cli.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.observe.runs import RunView

_WORKERS_SHOWN = 16
_MOST_S = 1e10  # a longer duration is damage
# The columns of runs by importance.
_FIRST = (
    "RUN",
    "STATE",
    "STEP",
    "LOSS",
    "AUC",
    "$",
    "SAMPLES/S",
    "TIME",
    "GOODPUT",
    "RESTARTS",
    "RANKS",
    "CHECKPOINT",
)


def runs_table(runs: Sequence[RunView], *, one: bool = False) -> str:
    """Format runs as a table, with their problems below it.

    Args:
        runs: the runs.
        one: whether one run was asked for, whose figures are then all shown, one a line if they do not fit.
    """
    if not runs:
        return "no runs yet (cloudrec train)"
    rows = [
        (
            run.name,
            run.state,
            run.world_size,
            _steps(run),
            _figure(run.loss, ".4f"),
            _figure(run.auc, ".4f"),
            _figure(run.samples_per_s, ",.0f"),
            _figure(run.goodput, ".0%"),
            run.restarts,
            run.checkpoint,
            duration(run.wall_s),
            _figure(run.cost_usd, ",.2f"),
        )
        for run in runs
    ]
    headers = (
        "RUN",
        "STATE",
        "RANKS",
        "STEP",
        "LOSS",
        "AUC",
        "SAMPLES/S",
        "GOODPUT",
        "RESTARTS",
        "CHECKPOINT",
        "TIME",
        "$",
    )
    causes = [f"{run.name}: {one_line(run.cause)}" for run in runs if run.cause]
    if one and len(rows) == 1:
        table = listed(headers, rows[0])
    else:
        table = fitted(headers, rows, first=_FIRST, more="-o wide, or `cloudrec status RUN`")
    return "\n".join([table, *causes])


def goodput_line(run: RunView) -> str:
    """Format how a run's time was spent, the largest part first, without parts of zero."""
    parts = sorted((run.goodput_parts or {}).items(), key=lambda part: -part[1])
    told = [
        f"{name.removesuffix('_s').replace('_', ' ')} {duration(seconds)}"
        for name, seconds in parts
        if round(seconds)
    ]
    return f"{run.name}: {', '.join(told) or 'no time yet'}"


def event_text(details: Mapping[str, Any]) -> str:
    """Format the details of an event of a run for people; the document has all of them.

    The command of a launch, which is long, and what is empty in the end of a rank are left out.
    """
    shown: dict[str, Any] = {}
    for key, value in details.items():
        if key == "end" and isinstance(value, Mapping):
            shown |= {
                name: each for name, each in value.items() if each not in (None, "") and each is not False
            }
        elif key != "command":
            shown[key] = value
    return ", ".join(_detail(key, value) for key, value in shown.items())


def _detail(key: str, value: object) -> str:
    name = key.replace("_", " ")
    if key == "exit_codes" and isinstance(value, Mapping):
        return _exit_codes(value)
    if key.endswith("_s") and isinstance(value, int | float) and 0 <= value < _MOST_S:
        return f"{name.removesuffix(' s')} {duration(value)}"
    if isinstance(value, Mapping):
        return f"{name} {' '.join(f'{inner} {each}' for inner, each in value.items())}"
    if isinstance(value, list):
        return f"{name} {' '.join(map(str, value))}"
    return f"{name} {'-' if value in (None, '') else value}"


def _exit_codes(codes: Mapping[str, object]) -> str:
    """Format the exit codes by rank: the code that all have, or how many ranks have each."""
    counts = Counter("-" if code is None else str(code) for code in codes.values())
    if len(counts) == 1:
        return f"exit code {next(iter(counts))}"
    ranks = (f"{code} ({count} rank{'s' if count > 1 else ''})" for code, count in counts.most_common())
    return f"exit codes {' '.join(ranks) or '-'}"


def workers_table(run: RunView) -> str:
    """Format a run's machines, those with a problem first; many healthy ones are only counted."""
    ill = [worker for worker in run.workers if worker.problem]
    well = [worker for worker in run.workers if not worker.problem]
    shown = [*ill, *well][: max(len(ill), _WORKERS_SHOWN)]
    rows = [(each.name, each.node or None, each.state, each.restarts, each.problem or None) for each in shown]
    table = columns(("WORKER", "NODE", "STATE", "RESTARTS", "PROBLEM"), rows)
    more = len(run.workers) - len(shown)
    ends = [f"{more} more, all healthy"] if more else []
    if run.preemptions:
        ends.append(f"preemptions: {run.preemptions}")
    return "\n".join([table, *ends])


def _steps(run: RunView) -> str | None:
    if run.step is None or run.total_steps is None:
        return None if run.step is None else str(run.step)
    return f"{run.step}/{run.total_steps}"


def _figure(value: float | None, how: str) -> str | None:
    return None if value is None else format(value, how)
