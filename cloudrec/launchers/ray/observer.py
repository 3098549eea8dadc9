"""Reads the state of a run from a Ray cluster, and keeps the run's ledger and folder up to date."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, PreflightError
from cloudrec.launchers.base import observer as remote
from cloudrec.launchers.base import record, results
from cloudrec.launchers.base.ledger import RunState, last_launch, state_after
from cloudrec.launchers.base.outputs import has_finished
from cloudrec.launchers.base.protocol import RunStatus, Worker
from cloudrec.launchers.ray.client import Cluster, GoneHeadError, UnknownJobError, UnreachableHeadError
from cloudrec.launchers.ray.head import head_of
from cloudrec.launchers.ray.job import submission_id
from cloudrec.launchers.ray.report import LaunchReport
from cloudrec.launchers.ray.settings import RaySettings
from cloudrec_contract.exit_codes import STOPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder

_SILENT, _ANSWERED = "silent", "heard"  # the ledger's events about the head


@dataclass(frozen=True, kw_only=True)
class RaySnapshot:
    """The state of a launch, as read from the Ray head and from the storage.

    Attributes:
        status: the status of the Ray job.
        message: Ray's message about the job.
        exit_code: the driver's exit code; None before it has ended.
        report: the driver's report; None before it has written one.
    """

    status: str
    message: str
    exit_code: int | None
    report: LaunchReport | None


class RayObserver(remote.RunObserver):
    """Watches one run. It keeps its connection to the head from one call to the next."""

    def __init__(self, run: RunFolder) -> None:
        super().__init__(run, run.spec())
        self._cluster: Cluster | None = None

    def _now(self) -> RunStatus:
        events = self._run.ledger.read()
        launch = last_launch(events)
        if final := record.final_status(events, launch):
            return final
        try:
            return self._look(launch)
        except (UnreachableHeadError, UnknownJobError) as error:
            return self._without_job(events, launch, error)
        except PreflightError as error:  # the token was changed
            return RunStatus(state=state_after(events), cause=f"as last seen: {error.message}")

    def _without_job(self, events: Sequence[LedgerEvent], launch: int, error: CloudrecError) -> RunStatus:
        own = {event.event for event in events if event.launch == launch}
        if "started" not in own:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        if isinstance(error, GoneHeadError):
            return self._lost(launch, error.message)
        if isinstance(error, UnreachableHeadError):
            # A head that was restarted may have another version or token, so the next call connects again.
            self._cluster = None
            return self._silent(events, launch, error)
        return self._lost(launch, f"{error.message}: its head was restarted, or the job deleted")

    def _look(self, launch: int) -> RunStatus:
        if self._cluster is None:
            self._cluster = Cluster(head_of(self._run, self._spec))
        job = self._cluster.job(submission_id(self._spec, launch))
        self._note_answer(launch)
        problem = self._bring(is_final=job.status.is_terminal())
        snapshot = RaySnapshot(
            status=str(job.status.value),
            message=str(job.message or ""),
            exit_code=job.driver_exit_code,
            report=self._report(launch),
        )
        return self._written(judge(snapshot, finished=has_finished(self._run)), launch, problem)

    def _note_answer(self, launch: int) -> None:
        events = [event.event for event in self._run.ledger.read() if event.event in (_SILENT, _ANSWERED)]
        if events and events[-1] == _SILENT:
            self._run.ledger.append(_ANSWERED, launch=launch)

    def _report(self, launch: int) -> LaunchReport | None:
        try:
            return LaunchReport.decode(results.place_of(self._spec).read(f"ray/{launch}.json"))
        except CloudrecError:
            return None

    def _written(self, status: RunStatus, launch: int, problem: str) -> RunStatus:
        """Return the status after recording it in the ledger.

        Each event is recorded once, by the process that sees it first.
        """
        run = self._run
        checkpoint = None
        if status.state.is_final:
            checkpoint = self._checkpoint()
            if status.state is RunState.INTERRUPTED:
                at = "no checkpoint is committed" if checkpoint is None else _newest(checkpoint)
                status = replace(status, cause=f"{status.cause}; {at}")
        with record.writing(run):
            problem = problem or self._note_starts()
            events = run.ledger.read()
            if known := record.final_status(events, launch):  # recorded by another process meanwhile
                return known
            status = replace(status, attempt=record.attempts(events, launch))
            record.note_state(run, events, status, launch, checkpoint=checkpoint)
        return remote.with_problem(status, problem)

    def _silent(self, events: Sequence[LedgerEvent], launch: int, error: CloudrecError) -> RunStatus:
        """Return the last known state; FAILED once the head has not answered for `lost_after_s`.

        The ledger keeps the time of the first missing answer, since each status may be another process.
        """
        answers = [event for event in events if event.event in (_SILENT, _ANSWERED)]
        if not answers or answers[-1].event == _ANSWERED or answers[-1].launch != launch:
            self._run.ledger.append(_SILENT, launch=launch, cause=error.message)
            answers = self._run.ledger.read()
        seconds = time.time() - answers[-1].time
        limit = RaySettings.of(self._spec).lost_after_s
        if seconds < limit:
            cause = f"as last seen: {error.message} (for {seconds:.0f} s; lost after {limit:g} s)"
            return RunStatus(state=state_after(events), cause=cause)
        return self._lost(launch, f"the Ray head is lost: {error.message}, for {seconds:.0f} s")

    def _lost(self, launch: int, cause: str) -> RunStatus:
        self._bring(is_final=True)
        checkpoint = self._checkpoint()
        at = "no checkpoint is committed" if checkpoint is None else _newest(checkpoint)
        return self._written(RunStatus(state=RunState.FAILED, cause=f"{cause}; {at}"), launch, "")


def judge(snapshot: RaySnapshot, *, finished: bool) -> RunStatus:
    """Return the state of a launch; pure.

    Args:
        snapshot: what was read of the launch.
        finished: whether the trainer's summary has the status "finished".
    """
    state, cause = _state(snapshot, finished=finished)
    workers = workers_of(snapshot.report) if snapshot.report else []
    return RunStatus(state=state, cause=cause or None, workers=workers)


def _state(snapshot: RaySnapshot, *, finished: bool) -> tuple[RunState, str]:
    report = snapshot.report
    # Ray reports every exit code but 0 as FAILED; the driver exits with STOPPED after a requested stop.
    stopped = snapshot.status == "FAILED" and snapshot.exit_code == STOPPED
    if snapshot.status == "SUCCEEDED":
        unfinished = 'its driver ended well, but there is no summary.json whose status is "finished"'
        found = (RunState.SUCCEEDED, "") if finished else (RunState.FAILED, unfinished)
    elif snapshot.status == "STOPPED" or stopped:
        found = RunState.INTERRUPTED, "stopped on request" if not stopped else _ended(report) or "stopped"
    elif snapshot.status == "PENDING":
        found = RunState.PENDING, snapshot.message
    elif snapshot.status == "RUNNING":
        found = (report.state, report.cause) if report else (RunState.PENDING, "its driver is starting")
    else:
        found = RunState.FAILED, _ended(report) or reason(snapshot.message)
    return found


def workers_of(report: LaunchReport) -> list[Worker]:
    """Return a launch's machines, in the order of their agents."""
    return [
        Worker(
            name=f"agent {place}",
            node=agent.node,
            state=agent.state,
            restarts=agent.restarts,
            problem=agent.cause,
        )
        for place, agent in sorted(report.places.items())
    ]


def reason(message: str) -> str:
    """Return the lines of Ray's message about a failed job that show the error, at most 600 characters."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if "runtime_env" in message and "pip" in message:
        errors = [line for line in lines if line.startswith("ERROR:")]
        if errors:
            return f"its requirements do not install: {' '.join(dict.fromkeys(errors))[:600]}"
    own = [line for line in lines if line.startswith("error:")]
    if own:
        return own[-1].removeprefix("error:").strip()
    return " ".join(lines)[-600:] or "its driver failed: `ray job logs` shows more"


def _ended(report: LaunchReport | None) -> str:
    return report.cause if report and report.code is not None else ""


def _newest(step: int) -> str:
    return f"the newest checkpoint is at step {step}"
