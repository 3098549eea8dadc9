"""Reads the state of a run from Slurm and its shared folder, and updates the run's ledger and folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, UsageError
from cloudrec.launchers.base import observer as remote
from cloudrec.launchers.base import outputs, record, results
from cloudrec.launchers.base.ledger import RunState, last_launch, state_after
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.ssh.shell import ShellUnreachableError
from cloudrec.launchers.slurm.accounting import UnknownEndError
from cloudrec.launchers.slurm.address import JobAddress
from cloudrec.launchers.slurm.run_state import SlurmSnapshot, judge
from cloudrec_contract.layout import run_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.slurm.jobs import Job
    from cloudrec.launchers.slurm.tools import Slurm


@dataclass(frozen=True, kw_only=True)
class Site:
    """The Slurm of a run, and its files as this machine reaches them.

    Args:
        run: the run's folder on this machine.
        spec: the run's spec, with the storage as this machine reaches it.
        slurm: the programs of its Slurm.
        root: the folder on the cluster below which runs write.
    """

    run: RunFolder
    spec: RunSpec
    slurm: Slurm
    root: str

    @property
    def is_here(self) -> bool:
        """Whether the nodes write to the run's folder on this machine."""
        return not self.slurm.shell.host and self.root == str(self.run.path.parent.parent)


class SlurmObserver(remote.RunObserver):
    """Watches one run on Slurm."""

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
        except ShellUnreachableError as error:
            return RunStatus(state=state_after(events), cause=f"as last seen: {error.message}")

    def _look(self, events: Sequence[LedgerEvent], launch: int) -> RunStatus:
        address = job_of(events, launch)
        if address is None:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        stop_asked = any(each.event == "stop_requested" and each.launch == launch for each in events)
        job = self._job(address.job, launch, stop_asked=stop_asked)
        sight = SlurmSnapshot(
            job=job,
            address=str(address),
            stop_asked=stop_asked,
            finished=True,  # `_closer` reads whether it has, once the job has ended
        )
        status = judge(sight)
        problem = self._bring(is_final=status.state.is_final)
        # The files in the run's folder are read once, at the end: through ssh each one is a call.
        if status.state.is_final:
            status = judge(self._closer(sight, launch))
        return self._written(status, job, launch, problem)

    def _job(self, number: int, launch: int, *, stop_asked: bool) -> Job | None:
        """Return a launch's job; None if Slurm has forgotten it and its end is known from other sources."""
        try:
            job = self._site.slurm.job(number)
        except UnknownEndError:
            if stop_asked or self._script_code(launch):
                return None
            raise
        # Slurm uses numbers again, so a job with another folder is not this one.
        folder = run_uri(self._site.root, self._run.name)
        return job if job and job.folder in ("", folder) else None

    def _script_code(self, launch: int) -> str:
        """Return the exit code that the job's script wrote at its end, as text; empty if it wrote none."""
        return (results.place_of(self._site.spec).read(f"slurm/end.{launch}") or b"").decode().strip()

    def _closer(self, sight: SlurmSnapshot, launch: int) -> SlurmSnapshot:
        """Return the snapshot, completed from the files in the run's folder."""
        spec, code = self._site.spec, self._script_code(launch)
        try:
            step = results.newest_checkpoint(spec)
        except CloudrecError:  # checkpoints may be in a store that only the nodes reach
            step, at = None, ""
        else:
            at = "no checkpoint is committed" if step is None else f"the newest checkpoint is at step {step}"
        return replace(
            sight,
            finished=outputs.has_finished(self._run),
            script_code=int(code) if code.isdigit() else None,
            cause=_cause(spec, launch),
            checkpoint=at,
        )

    def _written(self, status: RunStatus, job: Job | None, launch: int, problem: str) -> RunStatus:
        """Return the status after recording it in the ledger.

        Each event is recorded once, by the process that sees it first.
        """
        run = self._run
        with record.writing(run):
            _note_requeues(run, job, launch)
            problem = problem or self._note_starts()
            events = run.ledger.read()
            if known := record.final_status(events, launch):  # recorded by another process meanwhile
                return known
            status = replace(
                status, attempt=record.attempts(events, launch), preemptions=record.preemptions(events)
            )
            record.note_state(run, events, status, launch)
        return remote.with_problem(status, problem)

    def _bring(self, *, is_final: bool) -> str:
        return "" if self._site.is_here else super()._bring(is_final=is_final)


def job_of(events: Sequence[LedgerEvent], launch: int) -> JobAddress | None:
    """Return the address of a launch's job from the ledger; None if it has none."""
    jobs = [each.details.get("job") for each in events if each.event == "started" and each.launch == launch]
    try:
        return JobAddress.parse(str(jobs[-1])) if jobs else None
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
    """Return the cause that the first failed agent of a launch has recorded; empty if none has."""
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
