"""Reads the present state of the runs on this machine."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, DataError, UsageError
from cloudrec.launchers import launcher
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.ledger import LedgerEvent, RunState, last_launch
from cloudrec.launchers.base.record import place_after
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.observe.goodput import newest_goodput
from cloudrec.observe.metrics import LatestMetrics, latest_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.launchers.base.protocol import Worker
    from cloudrec.launchers.base.runspec import RunSpec

SCHEMA_VERSION = 1
_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The present state of one run; a figure that is not known (yet) is None.

    Args:
        name: the run's name.
        state: its state, from its launcher.
        cause: why it failed or was interrupted, or what is wrong with its folder.
        cluster: the cluster it runs on; of several, the one that had it last.
        elsewhere: the other clusters that it may move to.
        provider: that cluster's provider.
        launcher: the engine that started it.
        world_size: the number of ranks.
        step: the step of the newest record of the metrics.
        total_steps: the number of steps to train.
        epoch: the newest epoch.
        loss: the newest training loss.
        auc: the newest evaluation's AUC.
        samples_per_s: its throughput over all ranks.
        goodput: the share of all time since its first start for work whose results were kept.
        goodput_parts: the division of that time: seconds, by the trainer's names of the parts.
        checkpoint: step of the newest committed checkpoint.
        restarts: how often the workers were started again, over all launches.
        preemptions: how often a machine was preempted; 0 for engines that do not report it.
        workers: its machines, from its engine; empty for a run on this machine.
        cost_usd: cost of its nodes so far, in USD, as metered if it was; None if a price is unknown or zero.
        launches: the number of launches: 1, and one more for each resume.
        created: time of its first submit, in seconds since the epoch.
        started: time of the start of its newest launch.
        ended: time of the end of its newest launch.
        wall_s: seconds that it has run, over all launches.
        pid: the process id of its supervisor, if that lives on this machine.
        folder: the folder of its files.
        notifies: whether its spec asks for notifications.
    """

    name: str
    state: RunState
    cause: str | None = None
    cluster: str | None = None
    elsewhere: Sequence[str] = ()
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
    notifies: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state.is_final

    @property
    def is_resumable(self) -> bool:
        """Whether `train --resume` can resume it."""
        return self.state in (RunState.FAILED, RunState.INTERRUPTED)

    def to_json(self) -> dict[str, Any]:
        """Return the run as one element of the documented {"runs": [...]}."""
        document = asdict(self)
        del document["notifies"]  # for the code that looks after them
        return document


def list_runs(runs: Path, *, of: str | None = None) -> list[RunView]:
    """Return all runs in a folder, newest first; a damaged one is FAILED, with the reason as its cause.

    Args:
        runs: the folder.
        of: only the run of this name and those on the cluster of this name; None for all runs.
    """
    folders = (RunFolder(path=path) for path in _folders(runs))
    views = [
        view_or_reason(run) for run in folders if of is None or run.name == of or of in _clusters_of(run)
    ]
    return sorted(views, key=lambda view: (-(view.created or 0.0), view.name))


def newest_folders(runs: Path) -> list[RunFolder]:
    """Return the folders of all runs, newest first, by the first event of each; no engine is asked."""
    found = [RunFolder(path=path) for path in _folders(runs)]
    return sorted(found, key=lambda run: (-(run.ledger.began() or 0.0), run.name))


def load_run(runs: Path, name: str) -> RunView:
    """Return one run; UsageError if there is none of that name, DataError if its spec is damaged."""
    return view_run(find_run(runs, name))


def find_run(runs: Path, name: str) -> RunFolder:
    """Return the folder of a run, by its name or by its engine's id; UsageError if there is no such run.

    A name is compared with the names of the folders in `runs`, and never joined to a path: a name such as
    ../../x is not the name of a run.
    """
    if "://" in name:
        return _with_id(runs, name)
    for path in _folders(runs):
        if path.name == name:
            return RunFolder(path=path)
    known = [run.name for run in newest_folders(runs)]
    listed = f"the newest are: {', '.join(known[:5])}" if known else "there are no runs yet"
    raise UsageError(
        f"there is no run {name!r} in {runs}", remedy=f"{listed}; `cloudrec status` lists every run"
    )


def _with_id(runs: Path, name: str) -> RunFolder:
    """Return the run with a launch of this id, such as ray://HOST:PORT/JOB."""
    ids = {
        str(event.details["id"]): run
        for run in (RunFolder(path=path) for path in _folders(runs))
        for event in _events_of(run)
        if "id" in event.details
    }
    if name not in ids:
        newest = sorted(known for known in ids if known.partition("://")[0] == name.partition("://")[0])[-5:]
        listed = f"known are: {', '.join(newest)}" if newest else "`cloudrec status` lists the runs there are"
        raise UsageError(f"no run that was launched from here has the id {name!r}", remedy=listed)
    return ids[name]


def _events_of(run: RunFolder) -> Sequence[LedgerEvent]:
    try:
        return run.ledger.read()
    except CloudrecError:  # one damaged run must not hide the others
        return ()


def view_run(run: RunFolder) -> RunView:
    """Return the present state of a run."""
    spec = run.spec()
    status = launcher(spec.launcher).state(run)
    events = run.ledger.outline()
    cluster = place_after(events, last_launch(events)) or spec.cluster
    metrics, damage = _metrics(run)
    goodput = newest_goodput(metrics.train, outputs.read_summary(run))
    started = [event.time for event in events if event.event == "started"]
    wall_s = _wall_seconds(events, alive=not status.state.is_final, now=time.time())
    return RunView(
        name=run.name,
        state=status.state,
        cause="; ".join(filter(None, (status.cause, damage, _alarm(status.state, metrics)))) or None,
        cluster=cluster,
        elsewhere=[each for each in (spec.cluster, *spec.elsewhere) if each != cluster],
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
        # 0 is what earlier releases wrote for an unknown price, so it gives no cost either.
        cost_usd=spec.hourly_usd * wall_s / _HOUR if spec.hourly_usd else None,
        launches=sum(event.event == "submitted" for event in events),
        created=events[0].time if events else None,
        started=started[-1] if started else None,
        ended=_last_sign(events) if status.state.is_final else None,
        wall_s=wall_s,
        pid=None if status.state.is_final else _pid(events),
        folder=str(run.path),
        notifies=bool(spec.notify),
    )


def _folders(runs: Path) -> list[Path]:
    """Return the folders of all runs; a folder whose name begins with a dot is a draft."""
    try:
        return [path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except FileNotFoundError:
        return []


def _metrics(run: RunFolder) -> tuple[LatestMetrics, str]:
    """Return a run's newest figures; if the file cannot be read, no figures and the reason."""
    try:
        return latest_metrics(run.metrics_file), ""
    except DataError as error:
        return LatestMetrics(), f"damaged: {error.message}"


def _alarm(state: RunState, metrics: LatestMetrics) -> str:
    """Return that a run trains without a sound checkpoint of late, if it does."""
    alarms = {
        "it trains, but its checkpoints cannot be written": metrics.save_problem,
        "its newest checkpoint is damaged, and the next one is not written yet": metrics.damage,
    }
    found = [f"ALARM: {what}: {why}" for what, why in alarms.items() if why is not None]
    return "" if state.is_final else "; ".join(found)


def _clusters_of(run: RunFolder) -> Sequence[str]:
    try:
        spec = run.spec()
    except CloudrecError:  # the spec is damaged, so the cluster is unknown
        return ()
    return (spec.cluster, *spec.elsewhere)


def view_or_reason(run: RunFolder) -> RunView:
    """Return the present state of a run; one that is damaged is FAILED, with the reason as its cause."""
    try:
        return view_run(run)
    except CloudrecError as error:  # one damaged run must not hide the others
        cause = f"damaged: {error.message}" if isinstance(error, DataError) else error.message
        return RunView(name=run.name, state=RunState.FAILED, cause=cause, folder=str(run.path))


def _checkpoint(run: RunFolder, spec: RunSpec, reported: int | None) -> int | None:
    """Return the step of the newest committed checkpoint: that on the disk, else the trainer's report."""
    # The store of checkpoints may be reachable from the nodes only.
    if outputs.checkpoint_folder(run, spec) is None:
        return reported
    return outputs.committed_step(run, spec)


def _last_sign(events: Sequence[LedgerEvent]) -> float | None:
    """Return the time of the last event of the newest launch; None without events."""
    launch = last_launch(events)
    return max((event.time for event in events if event.launch == launch), default=None)


def _pid(events: Sequence[LedgerEvent]) -> int | None:
    pids = [event.details.get("pid") for event in events if event.event == "started"]
    return int(pids[-1]) if pids and pids[-1] else None


def _wall_seconds(events: Sequence[LedgerEvent], *, alive: bool, now: float) -> float:
    """Return the seconds that the run has run, over all launches.

    A launch without a recorded end, as after a kill of its supervisor, counts until its last event.
    """
    total = 0.0
    launches = sorted({event.launch for event in events})
    for launch in launches:
        times = [event.time for event in events if event.launch == launch and event.event != "submitted"]
        if times:
            end = now if alive and launch == launches[-1] else max(times)
            total += end - min(times)
    return round(total, 3)
