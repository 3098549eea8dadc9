"""Asks a Ray cluster how a run is, and keeps the run's ledger and folder up to date."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, PreflightError
from cloudrec.launch._ray.client import Cluster, GoneHeadError, UnknownJobError, UnreachableHeadError
from cloudrec.launch._ray.job import submission_id
from cloudrec.launch._ray.place import head_of
from cloudrec.launch._ray.settings import RaySettings
from cloudrec.launch._remote import observer as remote
from cloudrec.launch._remote import record, results
from cloudrec.launch.base import RunStatus, Worker
from cloudrec.launch.ledger import RunState, last_launch, state_after
from cloudrec.launch.outputs import has_finished
from cloudrec.launch.verdict import STOPPED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event

_SILENT, _HEARD = "silent", "heard"  # of the head, in the ledger


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What was seen of a launch.

    Attributes:
        status: Ray's word for the job.
        message: and what it says of it.
        exit_code: the driver's, once it has ended.
        report: what the driver has written down.
    """

    status: str
    message: str
    exit_code: int | None
    report: Mapping[str, Any]


class Observer(remote.Observer):
    """Watches one run; it remembers a little, so that who asks all the time does not cost much."""

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
        except PreflightError as error:  # a token that was changed
            return RunStatus(state=state_after(events), cause=f"as last seen: {error.message}")

    def _without_job(self, events: Sequence[Event], launch: int, error: CloudrecError) -> RunStatus:
        own = {event.event for event in events if event.launch == launch}
        if "started" not in own:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        if isinstance(error, GoneHeadError):
            return self._lost(launch, error.message)
        if isinstance(error, UnreachableHeadError):
            self._cluster = None
            return self._silent(events, launch, error)
        return self._lost(launch, f"{error.message}: its head was restarted, or the job deleted")

    def _look(self, launch: int) -> RunStatus:
        if self._cluster is None:
            self._cluster = Cluster(head_of(self._run, self._spec))
        told = self._cluster.job(submission_id(self._spec, launch))
        self._note_answer(launch)
        problem = self._bring(is_final=told.status.is_terminal())
        sight = Sight(
            status=str(told.status.value),
            message=str(told.message or ""),
            exit_code=told.driver_exit_code,
            report=self._report(launch),
        )
        return self._written(judge(sight, finished=has_finished(self._run)), launch, problem)

    def _note_answer(self, launch: int) -> None:
        words = [event.event for event in self._run.ledger.read() if event.event in (_SILENT, _HEARD)]
        if words and words[-1] == _SILENT:
            self._run.ledger.append(_HEARD, launch=launch)

    def _report(self, launch: int) -> dict[str, Any]:
        try:
            text = results.place_of(self._spec).read(f"ray/{launch}.json")
        except CloudrecError:
            return {}
        return _json(text)

    def _written(self, status: RunStatus, launch: int, problem: str) -> RunStatus:
        """Keep the ledger: each thing is told once, by whoever sees it first."""
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
            if known := record.final_status(events, launch):  # by another process, meanwhile
                return known
            status = replace(status, attempt=record.attempts(events, launch))
            record.note_state(run, events, status, launch, checkpoint=checkpoint)
        return remote.with_problem(status, problem)

    def _silent(self, events: Sequence[Event], launch: int, error: CloudrecError) -> RunStatus:
        """Wait for a head that does not answer, and give it up after a while."""
        told = [event for event in events if event.event in (_SILENT, _HEARD)]
        if not told or told[-1].event == _HEARD or told[-1].launch != launch:
            self._run.ledger.append(_SILENT, launch=launch, cause=error.message)
            told = self._run.ledger.read()
        seconds = time.time() - told[-1].time
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


def judge(sight: Sight, *, finished: bool) -> RunStatus:
    """Tell the state of a launch from what was seen; pure.

    Args:
        sight: what was seen.
        finished: whether the trainer's summary says that it has finished.
    """
    state, cause = _state(sight, finished=finished)
    return RunStatus(state=state, cause=cause or None, workers=workers_of(sight.report))


def _state(sight: Sight, *, finished: bool) -> tuple[RunState, str]:
    report = sight.report
    stopped = sight.status == "FAILED" and sight.exit_code == STOPPED
    if sight.status == "SUCCEEDED":
        unfinished = 'its driver ended well, but there is no summary.json whose status is "finished"'
        found = (RunState.SUCCEEDED, "") if finished else (RunState.FAILED, unfinished)
    elif sight.status == "STOPPED" or stopped:
        found = RunState.INTERRUPTED, "stopped on request" if not stopped else _ended(report) or "stopped"
    elif sight.status == "PENDING":
        found = RunState.PENDING, sight.message
    elif sight.status == "RUNNING":
        waits = str(report.get("cause") or "") if report else "its driver is starting"
        found = RunState(str(report.get("state") or "PENDING")), waits
    else:
        found = RunState.FAILED, _ended(report) or reason(sight.message)
    return found


def workers_of(report: Mapping[str, Any]) -> list[Worker]:
    """Return a launch's machines as its driver tells them."""
    return [
        Worker(
            name=f"agent {place}",
            node=str(told.get("node", "")),
            state=str(told.get("state", "")),
            restarts=int(told.get("restarts", 0)),
            problem=str(told.get("cause", "")),
        )
        for place, told in sorted((report.get("places") or {}).items(), key=lambda each: int(each[0]))
    ]


def reason(message: str) -> str:
    """Return the part of Ray's long messages that tells a person what to mend."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if "runtime_env" in message and "pip" in message:
        told = [line for line in lines if line.startswith("ERROR:")]
        if told:
            return f"its requirements do not install: {' '.join(dict.fromkeys(told))[:600]}"
    own = [line for line in lines if line.startswith("error:")]
    if own:
        return own[-1].removeprefix("error:").strip()
    return " ".join(lines)[-600:] or "its driver failed: `ray job logs` tells more"


def _ended(report: Mapping[str, Any]) -> str:
    return str(report.get("cause") or "") if report.get("code") is not None else ""


def _newest(step: int) -> str:
    return f"the newest checkpoint is at step {step}"


def _json(text: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(text or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
