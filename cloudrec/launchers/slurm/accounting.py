"""Slurm's accounting: the ends of jobs that the controller has forgotten, and the users' accounts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.launchers.base.ssh.shell import NOT_FOUND, ShellUnreachableError
from cloudrec.launchers.slurm.jobs import RECORD_FIELDS, recorded

if TYPE_CHECKING:
    from cloudrec.launchers.base.ssh.shell import Done, Shell
    from cloudrec.launchers.slurm.jobs import Job

_OFF = "accounting storage is disabled"
_AT_WORK = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "REQUEUED")


class UnknownEndError(ShellUnreachableError):
    """The accounting database exists, but does not have the end of a job at this moment."""


@dataclass(frozen=True, kw_only=True)
class Association:
    """An account that a user's jobs may use.

    Args:
        account: its name.
        partition: the only partition in which the user may use it; empty for all.
    """

    account: str
    partition: str = ""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The accounts of a user, for a Slurm that requires one.

    Args:
        user: the user's name.
        associations: the accounts.
    """

    user: str
    associations: tuple[Association, ...]


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """The accounting of one Slurm; it may have none.

    Args:
        shell: runs Slurm's programs.
    """

    shell: Shell

    def job(self, number: int) -> Job | None:
        """Return a job that has ended; None if there is no accounting or no such job.

        Raises:
            UnknownEndError: the accounting does not answer, or does not have the job's end yet.
        """
        words = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"]
        done = self._done([*words, f"--jobs={number}", f"--format={','.join(RECORD_FIELDS)}"])
        if done.code == NOT_FOUND or _OFF in done.err.lower():
            return None
        if done.code:
            reason = " ".join(done.err.split()) or f"sacct ended with {done.code}"
            raise UnknownEndError(
                f"Slurm's accounting does not answer for job {number}: {reason}", remedy="see `sacctmgr ping`"
            )
        job = recorded(done.text)
        # The controller reports an end to the database later, or never if it was killed in between.
        if job and job.state in _AT_WORK:
            raise UnknownEndError(
                f"Slurm's queue no longer has job {number}, and its accounting still has it as {job.state}",
                remedy="try again later; if the state stays, see `sacctmgr show runawayjobs`",
            )
        return replace(job, cancelled_by=self._name(job.cancelled_by)) if job else None

    def rights(self) -> Rights | None:
        """Return this user's accounts; None if Slurm requires none or does not report them."""
        config = dict(_settings(self._done(["scontrol", "show", "config"]).text))
        if "associations" not in config.get("AccountingStorageEnforce", ""):
            return None
        user = self._done(["id", "-un"]).text.strip()
        words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=Account,Partition"]
        try:
            done = self._done([*words, f"user={user}", f"cluster={config.get('ClusterName', '')}"])
        except UnknownEndError:  # without the database, the controller still checks each job by its copy
            return None
        return None if done.code or not user else Rights(user=user, associations=associations(done.text))

    def _name(self, uid: str) -> str:
        """Return the name of a user id; the id if the login node does not know it."""
        if not uid.isdigit():
            return uid
        return self._done(["id", "-nu", uid]).text.strip() or uid

    def _done(self, words: list[str]) -> Done:
        try:
            return self.shell.run(words)
        except ShellUnreachableError as error:
            raise UnknownEndError(error.message, remedy=error.remedy) from error


def associations(text: str) -> tuple[Association, ...]:
    """Return the associations in sacctmgr's output for Account,Partition."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Association(account=row[0], partition=row[1]) for row in rows if len(row) == 2)  # noqa: PLR2004


def _settings(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition("=") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, mark, value in pairs if mark]
