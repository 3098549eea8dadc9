"""Asks Slurm and the run's shared folder how a run is, and keeps the run's ledger and folder up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, UsageError
from cloudrec.launch import outputs
from cloudrec.launch._remote import observer as remote
from cloudrec.launch._remote import record, results
from cloudrec.launch._slurm.accounting import UntoldError
from cloudrec.launch._slurm.address import JobAddress
from cloudrec.launch._slurm.judge import Sight, judge
from cloudrec.launch._slurm.place import results_of
from cloudrec.launch._slurm.shell import UnreachableError
from cloudrec.launch.base import RunStatus
from cloudrec.launch.ledger import RunState, last_launch, state_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launch._slurm.jobs import Job
    from cloudrec.launch._slurm.tools import Slurm
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event
    from cloudrec.launch.runspec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a run is: its Slurm, and its files as this machine reaches them.

    Args:
        run: the run's folder here.
        spec: the run, its storage as this machine reaches it.
        slurm: the Slurm.
        root: the folder on the cluster below which runs write.
    """

    run: RunFolder
    spec: RunSpec
    slurm: Slurm
    root: str

    @property
    def is_here(self) -> bool:
        """Whether the run's own folder is the one that its nodes write to."""
        return not self.slurm.shell.host and self.root == str(self.run.path.parent.parent)


class Observer(remote.Observer):
    """Watches one run; it remembers a little, so that who asks all the time does not cost much."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.run, site.spec)
        self._site = site

    def _now(self) -> RunStatus:
        events = self._run.ledger.read()
        launch = last_launch(events)
        if known := record.final_status(events, launch):
            return known
        try:
            return self._look(events, launch)
        except UnreachableError as error:
            return RunStatus(state=state_after(events), cause=f"as last seen: {error.message}")

    def _look(self, events: Sequence[Event], launch: int) -> RunStatus:
        address = job_of(events, launch)
        if address is None:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        stop_asked = any(each.event == "stop_requested" and each.launch == launch for each in events)
        job = self._job(address.job, launch, stop_asked=stop_asked)
        sight = Sight(
            job=job,
            address=str(address),
            stop_asked=stop_asked,
            finished=True,  # whether it really has is looked up once it may have
        )
        status = judge(sight)
        problem = self._bring(is_final=status.state.is_final)
        if status.state.is_final:
            status = judge(self._closer(sight, launch))
        return self._written(status, job, launch, problem)

    def _job(self, number: int, launch: int, *, stop_asked: bool) -> Job | None:
        """Return a launch's job; None where Slurm has forgotten it, and its end is known without."""
        try:
            job = self._site.slurm.job(number)
        except UntoldError:
            if stop_asked or self._last_word(launch):
                return None
            raise
        folder = results_of(self._site.root, self._run.name)
        return job if job and job.folder in ("", folder) else None  # numbers are given again in time

    def _last_word(self, launch: int) -> str:
        return (results.place_of(self._site.spec).read(f"slurm/end.{launch}") or b"").decode().strip()

    def _closer(self, sight: Sight, launch: int) -> Sight:
        """Return the same with what the job has left in its folder."""
        spec, word = self._site.spec, self._last_word(launch)
        try:
            step = results.newest_checkpoint(spec)
        except CloudrecError:  # checkpoints may be in a store that only the nodes reach
            step, at = None, ""
        else:
            at = "no checkpoint is committed" if step is None else f"the newest checkpoint is at step {step}"
        return replace(
            sight,
            finished=outputs.has_finished(self._run),
            last_word=int(word) if word.isdigit() else None,
            cause=_cause(spec, launch),
            checkpoint=at,
        )

    def _written(self, status: RunStatus, job: Job | None, launch: int, problem: str) -> RunStatus:
        """Keep the ledger; several processes may look at once, and each thing is told once."""
        run = self._run
        with record.writing(run):
            _note_requeues(run, job, launch)
            problem = problem or self._note_starts()
            events = run.ledger.read()
            if known := record.final_status(events, launch):  # by another process, meanwhile
                return known
            status = replace(
                status, attempt=record.attempts(events, launch), preemptions=record.preemptions(events)
            )
            record.note_state(run, events, status, launch)
        return remote.with_problem(status, problem)

    def _bring(self, *, is_final: bool) -> str:
        return "" if self._site.is_here else super()._bring(is_final=is_final)


def job_of(events: Sequence[Event], launch: int) -> JobAddress | None:
    """Return the job of a launch as the ledger tells it; None where it tells of none."""
    told = [each.details.get("job") for each in events if each.event == "started" and each.launch == launch]
    try:
        return JobAddress.parse(str(told[-1])) if told else None
    except UsageError:
        return None


def _note_requeues(run: RunFolder, job: Job | None, launch: int) -> None:
    known = {each.details.get("uid") for each in run.ledger.read() if each.event == record.PREEMPTED}
    for number in range(1, (job.restarts if job else 0) + 1):
        uid = f"{job.id if job else 0}.{number}"
        if uid not in known:
            run.ledger.append(
                record.PREEMPTED,
                launch=launch,
                uid=uid,
                pod="job",
                cause="its job was put back into the queue",
            )


def _cause(spec: RunSpec, launch: int) -> str:
    """Return what the first agent that failed in a launch says of it; empty where none has."""
    place = results.place_of(spec)
    failures = []
    for name in place.sizes("pods/"):
        if name.endswith("/events.jsonl"):
            text = (place.read(name) or b"").decode(errors="replace")
            failures += [
                (float(event.get("time") or 0.0), name.split("/")[1], str(event["cause"]))
                for event in outputs.json_lines(text)
                if event.get("event") == "failed" and event.get("launch") == launch and event.get("cause")
            ]
    if not failures:
        return ""
    _, agent, cause = min(failures)
    return f"{agent.rpartition('-')[0]}: {cause}"
