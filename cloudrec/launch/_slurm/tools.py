"""Slurm's own programs: what is asked of them, and what their refusals mean."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import NoCapacityError, PreflightError, RunFailedError, UsageError
from cloudrec.launch._slurm.accounting import Accounting, UntoldError
from cloudrec.launch._slurm.jobs import QUEUE_FIELDS, queued
from cloudrec.launch._slurm.settings import seconds_of
from cloudrec.launch._slurm.shell import NOT_FOUND, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.errors import CloudrecError
    from cloudrec.launch._slurm.jobs import Job
    from cloudrec.launch._slurm.shell import Done, Shell

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
    """A partition, or that part of it whose nodes are alike.

    Args:
        name: its name.
        is_default: whether jobs go there that name none.
        is_up: whether it takes jobs.
        limit_s: seconds that a job may take; infinity for no limit.
        limit: the same as Slurm writes it.
        nodes: how many nodes.
        cpus: cores of each.
        gpus: GPUs of each.
        gpu_type: their kind, where it is told.
        memory_mb: memory of each.
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
        shell: where its programs are run.
    """

    shell: Shell

    @property
    def where(self) -> str:
        """The machine whose programs are used."""
        return self.shell.host or "this machine"

    def partitions(self) -> list[Partition]:
        """Return what there is to run on; PreflightError where Slurm is not there."""
        done = self._asked("sinfo", "--noheader", "--exact", "--format=%P|%a|%l|%D|%c|%G|%m")
        return [_partition(line.split("|")) for line in done.text.splitlines() if line.count("|") == 6]  # noqa: PLR2004

    def check(self, script: str) -> None:
        """Have Slurm judge a job without queueing it; raises what it refuses."""
        done = self.shell.run(["sbatch", "--test-only"], given=script.encode())
        if done.code:
            raise self.refusal("sbatch", done)

    def submit(self, script: str) -> int:
        """Queue a job; return its number."""
        done = self._asked("sbatch", "--parsable", given=script)
        found = _JOB.fullmatch(done.text.strip())
        if found is None:
            raise RunFailedError(f"sbatch's answer is no job's number: {done.text.strip()[:200]!r}")
        return int(found[1])

    @property
    def accounting(self) -> Accounting:
        """What it remembers of jobs and knows of users; there may be none."""
        return Accounting(shell=self.shell)

    def job(self, number: int) -> Job | None:
        """Return a job, from the queue or from the accounting; None where neither knows it.

        Raises:
            UntoldError: the queue has forgotten the job, and the accounting does not tell how it has ended.
        """
        words = ["squeue", "--noheader", "--states=all", f"--jobs={number}", f"--Format={_FORM}"]
        done = self.shell.run(words)
        if done.code and _UNKNOWN_JOB not in done.err.lower():
            raise self.refusal("squeue", done)
        found = queued(done.text)
        if not found:
            return self.accounting.job(number)
        return self._with_canceller(found[-1]) if found[-1].state == "CANCELLED" else found[-1]

    def jobs_named(self, name: str) -> list[Job]:
        """Return this user's jobs of a name that the queue still knows, oldest first."""
        done = self._asked(
            "squeue", "--noheader", "--states=all", "--me", f"--name={name}", f"--Format={_FORM}"
        )
        return sorted(queued(done.text), key=lambda job: job.id)

    def signal(self, number: int, name: str) -> None:
        """Send a signal to all agents of a job; nothing where it has ended."""
        self._ended_or(self.shell.run(["scancel", f"--signal={name}", str(number)]))

    def cancel(self, number: int) -> None:
        """End a job; nothing where it has ended."""
        self._ended_or(self.shell.run(["scancel", str(number)]))

    def _ended_or(self, done: Done) -> None:
        passing = (_UNKNOWN_JOB, "already completing", "already completed", "can not be altered now")
        if done.code and not any(words in done.err.lower() for words in passing):
            raise self.refusal("scancel", done)

    def _with_canceller(self, job: Job) -> Job:
        """Return a job with who has cancelled it, which the queue does not tell."""
        try:
            known = self.accounting.job(job.id)
        except UntoldError:  # that it was cancelled is told without
            known = None
        return replace(job, cancelled_by=known.cancelled_by if known else "")

    def _asked(self, *words: str, given: str = "") -> Done:
        done = self.shell.run(words, given=given.encode())
        if done.code:
            raise self.refusal(words[0], done)
        return done

    def refusal(self, program: str, done: Done) -> CloudrecError:
        """Return what a failed program means for the person who asked."""
        said = " ".join(done.err.split()) or f"{program} ended with {done.code}"
        lower = said.lower()
        if done.code == NOT_FOUND:
            return PreflightError(
                f"Slurm is not installed on {self.where}: there is no {program}",
                remedy="run this on a login node, or name one: --slurm-host user@host",
            )
        if any(words in lower for words in _DOWN):
            return UnreachableError(
                f"Slurm's controller does not answer {self.where}: {said}",
                remedy="see `scontrol ping`; jobs that run go on without it",
            )
        if any(words in lower for words in _BROKEN):
            return PreflightError(
                f"Slurm is not set up on {self.where}: {said}",
                remedy="run this on a login node; SLURM_CONF names another file of settings",
            )
        return _refused_job(said)


def _refused_job(said: str) -> CloudrecError:
    """Tell what is wrong with a job that Slurm does not take."""
    lower, words = said.lower(), said.removeprefix("sbatch: error: ").removeprefix("allocation failure: ")
    told = f"Slurm refuses the job: {words}"
    if "account" in lower:
        remedy = f"name an account that {getpass.getuser()} may use: --account; see `sacctmgr show assoc`"
    elif "partition" in lower:
        remedy = "name a partition that there is: --partition; `sinfo` lists them"
    elif "time limit" in lower:
        remedy = "ask for less with --time-limit; `sinfo` tells each partition's limit"
    elif "qos" in lower:
        remedy = "name another train.settings.qos"
    elif "feature" in lower:
        remedy = "name another train.settings.constraint; `sinfo --format=%f` lists the features"
    elif "generic resource" in lower:
        remedy = "name a gpu_type that there is, or set train.settings.gpus_per_node to 0"
    elif "not available" in lower or "more processors requested" in lower:
        return NoCapacityError(told, remedy="ask for fewer nodes, GPUs, cores or less memory: see `sinfo`")
    else:
        remedy = None
    return UsageError(told, remedy=remedy)


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
    return int(text.rstrip("+")) if text.rstrip("+").isdigit() else 0
