"""Slurm's accounting: how jobs ended that its controller has forgotten, and who may use which account."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.launch._slurm.jobs import RECORD_FIELDS, recorded
from cloudrec.launch._slurm.shell import NOT_FOUND, UnreachableError

if TYPE_CHECKING:
    from cloudrec.launch._slurm.jobs import Job
    from cloudrec.launch._slurm.shell import Done, Shell

_OFF = "accounting storage is disabled"
_AT_WORK = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "REQUEUED")


class UntoldError(UnreachableError):
    """There is an accounting, and it does not tell now how a job has ended."""


@dataclass(frozen=True, kw_only=True)
class Association:
    """An account that a user may have jobs paid from.

    Args:
        account: its name.
        partition: the only partition where that holds; empty for all.
    """

    account: str
    partition: str = ""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What a user may have jobs paid from, where Slurm takes jobs of such users alone.

    Args:
        user: who.
        associations: from what.
    """

    user: str
    associations: tuple[Association, ...]


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """The accounting of one Slurm, if it has any.

    Args:
        shell: where its programs are run.
    """

    shell: Shell

    def job(self, number: int) -> Job | None:
        """Return how a job has ended; None where there is no accounting, or no such job.

        Raises:
            UntoldError: the accounting does not answer, or has not been told of the job's end.
        """
        words = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"]
        done = self._done([*words, f"--jobs={number}", f"--format={','.join(RECORD_FIELDS)}"])
        if done.code == NOT_FOUND or _OFF in done.err.lower():
            return None
        if done.code:
            said = " ".join(done.err.split()) or f"sacct ended with {done.code}"
            raise UntoldError(
                f"Slurm's accounting does not tell of job {number}: {said}", remedy="see `sacctmgr ping`"
            )
        job = recorded(done.text)
        if job and job.state in _AT_WORK:
            raise UntoldError(
                f"Slurm's queue no longer knows job {number}, and for its accounting it is {job.state}",
                remedy="ask again later; if it stays so, see `sacctmgr show runawayjobs`",
            )
        return replace(job, cancelled_by=self._name(job.cancelled_by)) if job else None

    def rights(self) -> Rights | None:
        """Return what this user may have jobs paid from; None where Slurm does not ask, or tell."""
        config = dict(_settings(self._done(["scontrol", "show", "config"]).text))
        if "associations" not in config.get("AccountingStorageEnforce", ""):
            return None
        user = self._done(["id", "-un"]).text.strip()
        words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=Account,Partition"]
        try:
            done = self._done([*words, f"user={user}", f"cluster={config.get('ClusterName', '')}"])
        except UntoldError:  # its controller still judges each job, by what it was told before
            return None
        return None if done.code or not user else Rights(user=user, associations=associations(done.text))

    def _name(self, uid: str) -> str:
        """Return a user's name, where the login node knows it."""
        if not uid.isdigit():
            return uid
        return self._done(["id", "-nu", uid]).text.strip() or uid

    def _done(self, words: list[str]) -> Done:
        try:
            return self.shell.run(words)
        except UnreachableError as error:
            raise UntoldError(error.message, remedy=error.remedy) from error


def associations(text: str) -> tuple[Association, ...]:
    """Return the associations in sacctmgr's answer for Account,Partition."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Association(account=row[0], partition=row[1]) for row in rows if len(row) == 2)  # noqa: PLR2004


def _settings(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition("=") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, mark, value in pairs if mark]
