"""The address of a Slurm job, in output and arguments: slurm://[user@host/]JOBID."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cloudrec.errors import UsageError

_ADDRESS = re.compile(r"slurm://(?:(?P<host>(?:[\w.-]+@)?\w[\w.:-]*)/)?(?P<job>[0-9]+)")
SCHEME = "slurm://"


@dataclass(frozen=True, kw_only=True)
class JobAddress:
    """The address of a Slurm job.

    Args:
        job: the job's number.
        host: the login node as user@host; empty for this machine.
    """

    job: int
    host: str = ""

    @classmethod
    def parse(cls, text: str) -> JobAddress:
        """Return the address in a text; UsageError if it is none."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} is no address of a Slurm job",
                remedy="write slurm://JOBID or slurm://user@host/JOBID",
            )
        return cls(job=int(found["job"]), host=found["host"] or "")

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}{'/' if self.host else ''}{self.job}"
