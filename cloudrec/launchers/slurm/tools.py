"""Calls Slurm's programs, and turns their errors into cloudrec's."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import NoCapacityError, PreflightError, RunFailedError, UsageError
from cloudrec.launchers.base.ssh.shell import NOT_FOUND, ShellUnreachableError
from cloudrec.launchers.slurm.accounting import Accounting, UnknownEndError
from cloudrec.launchers.slurm.jobs import QUEUE_FIELDS, queued
from cloudrec.launchers.slurm.settings import seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.errors import CloudrecError
    from cloudrec.launchers.base.ssh.shell import Done, Shell
    from cloudrec.launchers.slurm.jobs import Job

_DOWN = (
    "unable to contact slurm controller",
    "connection refused",
    "unable to establish configuration source",
)
_BROKEN = ("unable to process configuration file", "cannot stat file", "invalid clustername")
_UNKNOWN_JOB = "invalid job id"
_FORM = ",".join(f"{name}:|" for name in QUEUE_FIELDS)
_GPUS = re.compile(r"gpu:(?:([^:(,]+):)?(\d+)")
_JOB = re.compile(r"(\d+)(?:;\S*)?")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The nodes of one kind in a partition.

    Args:
        name: the partition's name.
        is_default: whether it takes the jobs that name no partition.
        is_up: whether it takes jobs.
        limit_s: time limit of a job in seconds; infinity for no limit.
        limit: the time limit in Slurm's notation.
        nodes: number of nodes.
        cpus: cores of each node.
        gpus: GPUs of each node.
        gpu_type: kind of the GPUs; empty if unknown.
        memory_mb: memory of each node in MB.
    """

    name: str
    is_default: bool
    is_up: bool
    limit_s: float
    limit: str
    nodes: int
    cpus: int
    gpus: int
    gpu_type: str
    memory_mb: int


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """One Slurm.

    Args:
        shell: runs its programs.
    """

    shell: Shell

    @property
    def where(self) -> str:
        """The machine on which the programs run."""
        return self.shell.host or "this machine"

    def partitions(self) -> list[Partition]:
        """Return the partitions, one entry for each kind of node; PreflightError if Slurm does not answer."""
        done = self._done("sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%D|%c|%G|%m")
        return [_partition(line.split("|")) for line in done.text.splitlines() if line.count("|") == 6]  # noqa: PLR2004

    def check(self, script: str) -> None:
        """Test a job's script without queueing it; raises an error if Slurm refuses the job."""
        done = self.shell.run(["sbatch", "--test-only"], given=script.encode())
        if done.code:
            raise self.refusal("sbatch", done)

    def submit(self, script: str) -> int:
        """Queue a job; return its number."""
        done = self._done("sbatch", "--parsable", given=script)
        found = _JOB.fullmatch(done.text.strip())
        if found is None:
            raise RunFailedError(f"sbatch printed no job number: {done.text.strip()[:200]!r}")
        return int(found[1])

    @property
    def accounting(self) -> Accounting:
        """Its accounting, which may be disabled."""
        return Accounting(shell=self.shell)

    def job(self, number: int) -> Job | None:
        """Return a job, from the queue or from the accounting; None if neither has it.

        Raises:
            UnknownEndError: the queue has forgotten the job, and the accounting does not have its end.
        """
        words = ["squeue", "--noheader", "--states=all", f"--jobs={number}", f"--Format={_FORM}"]
        # squeue fails for a job that it has forgotten: that is no error, but a case for the accounting.
        done = self.shell.run(words)
        if done.code and _UNKNOWN_JOB not in done.err.lower():
            raise self.refusal("squeue", done)
        found = queued(done.text)
        if not found:
            return self.accounting.job(number)
        return self._with_canceller(found[-1]) if found[-1].state == "CANCELLED" else found[-1]

    def jobs_named(self, name: str) -> list[Job]:
        """Return this user's jobs of a name that the queue still has, oldest first."""
        done = self._done(
            "squeue", "--noheader", "--states=all", "--me", f"--name={name}", f"--Format={_FORM}"
        )
        return sorted(queued(done.text), key=lambda job: job.id)

    def signal(self, number: int, name: str) -> None:
        """Send a signal to all agents of a job. A job that has ended is no error."""
        self._check_scancel(self.shell.run(["scancel", f"--signal={name}", str(number)]))

    def cancel(self, number: int) -> None:
        """Cancel a job. A job that has ended is no error."""
        self._check_scancel(self.shell.run(["scancel", str(number)]))

    def _check_scancel(self, done: Done) -> None:
        """Raise scancel's error, unless the job has ended."""
        passing = (_UNKNOWN_JOB, "already completing", "already completed", "can not be altered now")
        if done.code and not any(words in done.err.lower() for words in passing):
            raise self.refusal("scancel", done)

    def _with_canceller(self, job: Job) -> Job:
        """Return a job with the user that cancelled it, which only the accounting has."""
        try:
            known = self.accounting.job(job.id)
        except UnknownEndError:  # the job is cancelled either way
            known = None
        return replace(job, cancelled_by=known.cancelled_by if known else "")

    def _done(self, *words: str, given: str = "") -> Done:
        done = self.shell.run(words, given=given.encode())
        if done.code:
            raise self.refusal(words[0], done)
        return done

    def refusal(self, program: str, done: Done) -> CloudrecError:
        """Return the error for a program that failed, with the remedy."""
        reason = " ".join(done.err.split()) or f"{program} ended with {done.code}"
        lower = reason.lower()
        if done.code == NOT_FOUND:
            return PreflightError(
                f"Slurm is not installed on {self.where}: there is no {program}",
                remedy="run this on a login node, or name one: --slurm-host user@host",
            )
        if any(words in lower for words in _DOWN):
            return ShellUnreachableError(
                f"Slurm's controller does not answer {self.where}: {reason}",
                remedy="see `scontrol ping`; running jobs continue without it",
            )
        if any(words in lower for words in _BROKEN):
            return PreflightError(
                f"Slurm is not set up on {self.where}: {reason}",
                remedy="run this on a login node; SLURM_CONF names another configuration file",
            )
        return _refused_job(reason)


def _refused_job(reason: str) -> CloudrecError:
    """Return the error for a job that Slurm refuses, with the remedy."""
    lower = reason.lower()
    words = reason.removeprefix("sbatch: error: ").removeprefix("allocation failure: ")
    message = f"Slurm refuses the job: {words}"
    if "account" in lower:
        remedy = f"name an account that {getpass.getuser()} may use: --account; see `sacctmgr show assoc`"
    elif "partition" in lower:
        remedy = "name a partition that there is: --partition; `sinfo` lists them"
    elif "time limit" in lower:
        remedy = "request less with --time-limit; `sinfo` lists each partition's limit"
    elif "qos" in lower:
        remedy = "name another train.settings.qos"
    elif "feature" in lower:
        remedy = "name another train.settings.constraint; `sinfo --format=%f` lists the features"
    elif "generic resource" in lower:
        remedy = "name a gpu_type that the nodes have, or set train.settings.gpus_per_node to 0"
    elif "not available" in lower or "more processors requested" in lower:
        return NoCapacityError(message, remedy="request fewer nodes, GPUs, cores or less memory: see `sinfo`")
    else:
        remedy = None
    return UsageError(message, remedy=remedy)


def _partition(columns: Sequence[str]) -> Partition:
    name, available, limit, nodes, cpus, gres, memory = columns
    kinds = _GPUS.findall(gres)
    return Partition(
        name=name.removesuffix("*"),
        is_default=name.endswith("*"),
        is_up=available.startswith("up"),
        limit_s=_limit_s(limit),
        limit=limit,
        nodes=int(nodes),
        cpus=_number(cpus),
        gpus=sum(int(count) for _, count in kinds),
        gpu_type=kinds[0][0] if kinds else "",
        memory_mb=_number(memory),
    )


def _limit_s(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError:
        return float("inf")


def _number(text: str) -> int:
    # sinfo writes 64+ if the nodes differ, and 64 is the least of them.
    return int(text.rstrip("+")) if text.rstrip("+").isdigit() else 0
