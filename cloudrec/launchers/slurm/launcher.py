"""The launcher for Slurm: one job of several nodes, with an agent on each, on a shared file system.

    cloudrec train -> sbatch -> the job's script -> srun -> an agent a node (cloudrec.agent slurm) -> torchrun

Slurm's programs run on this machine, or on a login node that is reached by ssh. No cloudrec process stays
there: later commands find a run by its job's number in the ledger, and by the folder that the nodes write to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from cloudrec.errors import CloudrecError, RunFailedError, UsageError
from cloudrec.home import write_atomically
from cloudrec.launchers.base import launches, results
from cloudrec.launchers.base.ledger import RunState, last_launch
from cloudrec.launchers.base.protocol import LaunchPlan, RunHandle
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.script.prepare import deliver
from cloudrec.launchers.base.ssh.shell import ShellUnreachableError
from cloudrec.launchers.slurm import attaching, checks
from cloudrec.launchers.slurm.address import JobAddress
from cloudrec.launchers.slurm.lines import SlurmRankLog
from cloudrec.launchers.slurm.observer import Site, SlurmObserver, job_of
from cloudrec.launchers.slurm.run_files import root_of, seen_from_here
from cloudrec.launchers.slurm.run_state import SlurmSnapshot, judge
from cloudrec.launchers.slurm.script import job_script
from cloudrec.launchers.slurm.settings import SlurmSettings
from cloudrec.launchers.slurm.shell import shell_of
from cloudrec.launchers.slurm.tools import Slurm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cloudrec.launchers.base.protocol import RunStatus, Skipped
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.slurm.script import JobScript

__all__ = ["LAUNCHER", "JobAddress", "SlurmLauncher", "run_of"]

_POLL_S = 0.3
_KILL_MARGIN_S = 60.0  # beyond the grace: Slurm's KillWait (30 s by default), and its scheduling rounds


@dataclass(frozen=True, kw_only=True)
class SlurmLauncher:
    """Runs the trainer's ranks in a Slurm job.

    Args:
        name: the value of `--launcher`.
        reads_local_files: True: the nodes share a file system with the login node that launches.
        nodes_of_cluster: False: Slurm assigns the nodes.
    """

    name: str = "slurm"
    reads_local_files: bool = True
    nodes_of_cluster: bool = False
    _memories: dict[str, SlurmObserver] = field(default_factory=dict, repr=False, compare=False)

    def preflight(self, spec: RunSpec) -> None:
        """Check settings, partition, account and size, and the job's script with `sbatch --test-only`."""
        settings = SlurmSettings.of(spec.settings)
        checks.refuse_flags(spec)
        checks.refuse_secrets(spec, settings)
        slurm = Slurm(shell=shell_of(settings))
        parts = checks.chosen(slurm, settings)
        checks.check_account(slurm, settings, parts)
        gpus = checks.gpus_of(spec, settings, parts)
        checks.check_size(spec, settings, parts, gpus)
        checks.check_programs(slurm.shell, spec, settings)
        root = settings.folder or "/tmp"  # noqa: S108 - the job is only tested, and writes nothing
        slurm.check(job_script(spec, settings, root=root, launch=1, gpus=gpus).text())

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the job's script and the command that queues it."""
        site, settings = _site(run, spec), SlurmSettings.of(spec.settings)
        script = _script(site, spec, settings, launch=launches.next_launch(run))
        return LaunchPlan(
            command=("sbatch", "--parsable"),
            environment=script.environment,
            files={
                "trainer.yaml": _config(spec),
                f"slurm/job.{script.launch}.sh": script.text(),
            },
        )

    def submit(self, run: RunFolder) -> RunHandle:
        """Queue the run's job, or continue with the job that a killed process has queued."""
        spec = run.spec()
        settings, site = SlurmSettings.of(spec.settings), _site(run, spec)
        _refuse_alive(self, run)
        launch = launches.next_launch(run)
        if last_launch(run.ledger.read()) < launch:
            run.ledger.append("submitted", launch=launch, launcher=self.name)
        script = _script(site, spec, settings, launch=launch)
        try:
            number = _queued(site, script) or _queue(site, script, _config(spec))
        except ShellUnreachableError:
            raise  # the launch stays open, and the next submit continues it
        except CloudrecError as error:
            run.ledger.append("failed", launch=launch, cause=error.message)
            raise
        address = JobAddress(job=number, host=settings.host)
        run.ledger.append("started", launch=launch, job=str(address), id=str(address))
        self._memories.pop(str(run.path), None)
        return RunHandle(id=str(address), launch=launch)

    def state(self, run: RunFolder) -> RunStatus:
        """Return the run's state; Slurm is not called if the ledger has the end of the launch."""
        return self._observer(run).status()

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Signal the agents to end and wait until they have; cancel the job after the grace."""
        status = self.state(run)
        launches.refuse_over(run, status)
        site, launch = _site(run, run.spec()), last_launch(run.ledger.read())
        address = job_of(run.ledger.read(), launch)
        grace = run.spec().stop_grace_s if grace_s is None else grace_s
        run.ledger.append("stop_requested", launch=launch, grace_s=grace)
        if address is None:
            run.ledger.append("interrupted", launch=launch, cause="stopped before its job was queued")
            return self.state(run)
        # The job's script reads this file: without it, the job would go back to the queue.
        results.place_of(site.spec).write(f"slurm/stop.{launch}", b"stop\n")
        if status.state is RunState.RUNNING:
            site.slurm.signal(address.job, "TERM")
        else:
            site.slurm.cancel(address.job)
        if not self._has_ended(run, grace):
            site.slurm.cancel(address.job)
            site.slurm.signal(address.job, "KILL")
        if not self._has_ended(run, _KILL_MARGIN_S):
            raise RunFailedError(
                f"the run {run.name!r} was asked to stop, and is still {self.state(run).state}",
                remedy=f"see `squeue --jobs {address.job}`; `cloudrec status` shows when it has ended",
            )
        return self.state(run)

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield one rank's lines, from all nodes that it ran on."""
        log = SlurmRankLog(results.place_of(_site(run, run.spec()).spec), rank)
        return log.lines(follow=follow, tail=tail, is_over=lambda: self.state(run).state.is_final)

    def execute(
        self, run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
    ) -> int:
        """Run a command on the node of a rank, as another step of the job."""
        return attaching.execute(run, command, rank=rank, stdin=stdin, terminal=terminal)

    def collect(self, run: RunFolder, *, checkpoints: bool = False) -> Sequence[Skipped]:
        """Copy the run's files into its folder, unless the nodes write to that folder."""
        site = _site(run, run.spec())
        if site.is_here:
            return ()
        return results.bring(run, site.spec, everything=True, checkpoints=checkpoints)

    def job_status(self, address: JobAddress, *, ssh_config: str = "") -> RunStatus:
        """Return the state of any job; UsageError if Slurm has no such job.

        Args:
            address: the job's address.
            ssh_config: ssh's configuration file; empty for the user's own.
        """
        shell = shell_of(SlurmSettings(host=address.host, ssh_config=ssh_config))
        job = Slurm(shell=shell).job(address.job)
        if job is None:
            raise UsageError(
                f"Slurm on {address.host or 'this machine'} knows no job {address.job}",
                remedy="`cloudrec status` lists the runs of this machine, `squeue --me` your jobs",
            )
        return judge(SlurmSnapshot(job=job, address=str(address), finished=job.state == "COMPLETED"))

    def _observer(self, run: RunFolder) -> SlurmObserver:
        observer = self._memories.get(str(run.path))
        # `setdefault`: the thread that follows the lines may make it at the same time.
        return observer or self._memories.setdefault(str(run.path), SlurmObserver(_site(run, run.spec())))

    def _has_ended(self, run: RunFolder, within_s: float) -> bool:
        give_up = time.monotonic() + within_s
        self._memories.pop(str(run.path), None)
        while not self.state(run).state.is_final:
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)
        return True


LAUNCHER = SlurmLauncher()


def run_of(runs: Path, address: JobAddress) -> RunFolder | None:
    """Return the run that a job belongs to, or None.

    Args:
        runs: the folder with one folder for each run.
        address: the address of any of the run's jobs.
    """
    for path in sorted(runs.glob("*/events.jsonl")):
        run = RunFolder(path=path.parent)
        jobs = (event.details.get("job") for event in run.ledger.read() if event.event == "started")
        if str(address) in jobs:
            return run
    return None


def _site(run: RunFolder, spec: RunSpec) -> Site:
    settings = SlurmSettings.of(spec.settings)
    shell = shell_of(settings)
    root = root_of(run, settings, shell)
    return Site(run=run, spec=seen_from_here(spec, settings, root), slurm=Slurm(shell=shell), root=root)


def _script(site: Site, spec: RunSpec, settings: SlurmSettings, *, launch: int) -> JobScript:
    gpus = settings.gpus_per_node
    if gpus is None:
        gpus = checks.gpus_of(spec, settings, checks.chosen(site.slurm, settings))
    return job_script(spec, settings, root=site.root, launch=launch, gpus=gpus)


def _config(spec: RunSpec) -> str:
    return yaml.safe_dump(dict(spec.trainer_config), sort_keys=False)


def _refuse_alive(launcher: SlurmLauncher, run: RunFolder) -> None:
    events = run.ledger.read()
    if job_of(events, last_launch(events)) is None:
        return
    status = launcher.state(run)
    launches.refuse_alive(run, status)


def _queued(site: Site, script: JobScript) -> int | None:
    """Return the number of the job of this launch, if a killed process has queued one; else None."""
    jobs = site.slurm.jobs_named(f"{script.run}.{script.launch}")
    return next((job.id for job in reversed(jobs) if job.folder == script.results), None)


def _queue(site: Site, script: JobScript, config: str) -> int:
    """Write the job's files to its folder, and queue the job; return its number."""
    run, place = site.run, results.place_of(site.spec)
    results.forget_summary(run, site.spec)
    deliver(run, site.spec)
    place.write("trainer.yaml", config.encode())
    place.write(f"slurm/job.{script.launch}.sh", script.text().encode())
    place.remove(f"slurm/end.{script.launch}")
    if not site.is_here:
        write_atomically(run.config_file, config)
        place.write("spec.json", run.spec().to_json().encode())
    return site.slurm.submit(script.text())
