"""The runs on this machine, as they stand now."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, UsageError
from cloudrec.launch import launcher, outputs
from cloudrec.launch.folder import RunFolder
from cloudrec.launch.ledger import Event, RunState, last_launch
from cloudrec.observe.goodput import newest_goodput
from cloudrec.observe.metrics import latest_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.launch.base import Worker
    from cloudrec.launch.runspec import RunSpec

SCHEMA_VERSION = 1
_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run as a person wants to see it; a figure that is not known (yet) is None.

    Args:
        name: the run's name.
        state: its state as its launcher tells it.
        cause: why it failed or was interrupted, or what is wrong with its folder.
        cluster: the cluster it runs on.
        provider: that cluster's provider.
        launcher: the engine that started it.
        world_size: the number of ranks.
        step: the step that the newest record of the metrics is about.
        total_steps: how many steps there are to do.
        epoch: that step's epoch.
        loss: its training loss.
        auc: the newest evaluation's AUC.
        samples_per_s: its throughput over all ranks.
        goodput: the share of all time since its first start that went into work whose results were kept.
        goodput_parts: where that time went, seconds by part, as the trainer names them.
        checkpoint: step of the newest committed checkpoint.
        restarts: how often the workers were started again, over all launches.
        preemptions: how often a machine was taken away from it, where its engine can tell.
        workers: its machines as its engine tells them, where there are several.
        cost_usd: what its nodes have cost so far; None where their price is not known, or is none.
        launches: how often the run was launched: 1, and one more for each resume.
        created: when it was first submitted, seconds since the epoch.
        started: when its newest launch began.
        ended: when that ended.
        wall_s: seconds for which it has been running, over all launches.
        pid: the process that looks after it, where that is on this machine and alive.
        folder: where its files are.
    """

    name: str
    state: RunState
    cause: str | None = None
    cluster: str | None = None
    provider: str | None = None
    launcher: str | None = None
    world_size: int | None = None
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    loss: float | None = None
    auc: float | None = None
    samples_per_s: float | None = None
    goodput: float | None = None
    goodput_parts: Mapping[str, float] | None = None
    checkpoint: int | None = None
    restarts: int = 0
    preemptions: int = 0
    workers: Sequence[Worker] = ()
    cost_usd: float | None = None
    launches: int = 0
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    wall_s: float = 0.0
    pid: int | None = None
    folder: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen unless somebody resumes it."""
        return self.state.is_final

    @property
    def is_resumable(self) -> bool:
        """Whether `train --resume` can go on with it."""
        return self.state in (RunState.FAILED, RunState.INTERRUPTED)

    def to_json(self) -> dict[str, Any]:
        """Return the run as one element of the documented {"runs": [...]}."""
        return asdict(self)


def list_runs(runs: Path, *, of: str | None = None) -> list[RunView]:
    """Return every run in a folder, newest first; a damaged one is among them, with the reason.

    Args:
        runs: the folder.
        of: only the run of this name, and those on the cluster of this name; no other is asked.
    """
    try:
        folders = [path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    asked = (RunFolder(path=path) for path in folders)
    views = [_view_or_reason(run) for run in asked if of is None or run.name == of or _cluster_of(run) == of]
    return sorted(views, key=lambda view: (-(view.created or 0.0), view.name))


def load_run(runs: Path, name: str) -> RunView:
    """Return one run; UsageError when there is none of that name, DataError when its spec is damaged."""
    return view_run(find_run(runs, name))


def find_run(runs: Path, name: str) -> RunFolder:
    """Return the folder of a run, by its name or by its engine's id; UsageError names the runs there are."""
    if "://" in name:
        return _with_id(runs, name)
    folder = RunFolder(path=runs / name)
    if not name or "/" in name or name.startswith(".") or not folder.path.is_dir():
        known = [view.name for view in list_runs(runs)]
        listed = f"the newest are: {', '.join(known[:5])}" if known else "there are no runs yet"
        raise UsageError(f"there is no run {name!r} in {runs}", remedy=listed)
    return folder


def _with_id(runs: Path, name: str) -> RunFolder:
    """Return the run of which a launch has this id, such as ray://HOST:PORT/JOB."""
    folders = [RunFolder(path=path) for path in runs.glob("[!.]*") if path.is_dir()]
    ids = {
        str(event.details["id"]): run
        for run in folders
        for event in run.ledger.read()
        if "id" in event.details
    }
    if name not in ids:
        newest = sorted(known for known in ids if known.partition("://")[0] == name.partition("://")[0])[-5:]
        listed = f"known are: {', '.join(newest)}" if newest else "`cloudrec status` lists the runs there are"
        raise UsageError(f"no run that was launched from here has the id {name!r}", remedy=listed)
    return ids[name]


def view_run(run: RunFolder) -> RunView:
    """Return a run as it stands now."""
    spec = run.spec()
    status = launcher(spec.launcher).state(run)
    events = run.ledger.read()
    metrics = latest_metrics(run.metrics_file)
    goodput = newest_goodput(metrics.train, outputs.read_summary(run))
    started = [event.time for event in events if event.event == "started"]
    wall_s = _wall_seconds(events, alive=not status.state.is_final, now=time.time())
    return RunView(
        name=run.name,
        state=status.state,
        cause=status.cause,
        cluster=spec.cluster,
        provider=spec.provider,
        launcher=spec.launcher,
        world_size=spec.world_size,
        step=metrics.step,
        total_steps=metrics.total_steps,
        epoch=metrics.epoch,
        loss=metrics.loss,
        auc=metrics.auc,
        samples_per_s=metrics.samples_per_s,
        goodput=goodput.fraction if goodput else None,
        goodput_parts=goodput.parts if goodput else None,
        checkpoint=_checkpoint(run, spec, metrics.checkpoint),
        restarts=sum(event.event == "restarting" for event in events),
        preemptions=status.preemptions,
        workers=status.workers,
        cost_usd=spec.hourly_usd * wall_s / _HOUR if spec.hourly_usd else None,
        launches=sum(event.event == "submitted" for event in events),
        created=events[0].time if events else None,
        started=started[-1] if started else None,
        ended=_last_sign(events) if status.state.is_final else None,
        wall_s=wall_s,
        pid=None if status.state.is_final else _pid(events),
        folder=str(run.path),
    )


def _cluster_of(run: RunFolder) -> str:
    try:
        return run.spec().cluster
    except CloudrecError:  # it cannot be told whose it was
        return ""


def _view_or_reason(run: RunFolder) -> RunView:
    try:
        return view_run(run)
    except CloudrecError as error:  # one damaged run must not hide the others
        return RunView(name=run.name, state=RunState.FAILED, cause=error.message, folder=str(run.path))


def _checkpoint(run: RunFolder, spec: RunSpec, reported: int | None) -> int | None:
    """Return the newest committed checkpoint's step: what is on disk, or else what the trainer reported."""
    if outputs.checkpoint_folder(run, spec) is None:
        return reported
    return outputs.committed_step(run, spec)


def _last_sign(events: Sequence[Event]) -> float | None:
    """Return when the newest launch ended, or gave its last sign of life when it was killed."""
    launch = last_launch(events)
    return max((event.time for event in events if event.launch == launch), default=None)


def _pid(events: Sequence[Event]) -> int | None:
    pids = [event.details.get("pid") for event in events if event.event == "started"]
    return int(pids[-1]) if pids and pids[-1] else None


def _wall_seconds(events: Sequence[Event], *, alive: bool, now: float) -> float:
    """Return the seconds for which the run was looked after, all launches together.

    A launch whose end nobody wrote down (its supervisor was killed) counts up to its last event.
    """
    total = 0.0
    launches = sorted({event.launch for event in events})
    for launch in launches:
        times = [event.time for event in events if event.launch == launch and event.event != "submitted"]
        if times:
            end = now if alive and launch == launches[-1] else max(times)
            total += end - min(times)
    return round(total, 3)
