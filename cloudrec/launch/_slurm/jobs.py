"""A job as Slurm tells of it: by its queue while it knows the job, by its accounting afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE_FIELDS = (
    *("JobID", "State", "Reason", "NodeList", "exit_code", "RestartCnt", "StartTime", "TimeLimit"),
    "WorkDir",
)
# Slurm 22.05 has no field for restarts: each is a record of its own. A folder may hold any character: last.
RECORD_FIELDS = ("JobIDRaw", "Submit", "State", "ExitCode", "NodeList", "Start", "Timelimit", "WorkDir")
_NOTHING = ("None", "(null)", "n/a", "N/A", "None assigned", "Unknown")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as Slurm tells it.

    Args:
        id: its number.
        state: Slurm's own word, such as RUNNING or NODE_FAIL.
        reason: why it waits, or ended; only the queue tells it.
        nodes: its nodes, as Slurm writes them.
        exit_code: its script's exit code.
        signal: the signal that ended it; 0 for none.
        restarts: how often it was put back into the queue.
        start: when it began, or will.
        limit: the time that it may take, as Slurm writes it.
        folder: where it runs.
        cancelled_by: the user who cancelled it; only the accounting tells it.
    """

    id: int
    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    start: str = ""
    limit: str = ""
    folder: str = ""
    cancelled_by: str = ""


def queued(text: str) -> list[Job]:
    """Return the jobs in squeue's answer for QUEUE_FIELDS."""
    rows = (line.split("|") for line in text.splitlines())
    return [_queued([each.strip() for each in row]) for row in rows if len(row) > len(QUEUE_FIELDS)]


def recorded(text: str) -> Job | None:
    """Return the job in sacct's answer for RECORD_FIELDS with duplicates; None where it has none.

    A job that was put back into the queue has a record for each time that it ran. Records of another folder
    are another job's, which had the number before.
    """
    rows = [line.split("|", len(RECORD_FIELDS) - 1) for line in text.splitlines()]
    rows = sorted((row for row in rows if len(row) == len(RECORD_FIELDS)), key=lambda row: row[1])
    if not rows:
        return None
    before = [row for row in rows[:-1] if row[-1] == rows[-1][-1]]
    return replace(_recorded(rows[-1]), restarts=len(before))


def _queued(columns: Sequence[str]) -> Job:
    number, state, reason, nodes, code, restarts, start, limit, folder = columns[: len(QUEUE_FIELDS)]
    status = int(code) if code.isdigit() else 0
    return Job(
        id=int(number),
        state=state,
        reason=_told(reason),
        nodes=_told(nodes),
        exit_code=status >> 8,  # as wait() tells it
        signal=status & 0x7F,
        restarts=int(restarts) if restarts.isdigit() else 0,
        start=_told(start),
        limit=limit,
        folder=folder,
    )


def _recorded(columns: Sequence[str]) -> Job:
    number, _, words, code, nodes, start, limit, folder = columns
    state, _, by = words.partition(" by ")  # it says "CANCELLED by 1000"
    exit_code, _, signal = code.partition(":")
    return Job(
        id=int(number),
        state=state,
        nodes=_told(nodes),
        exit_code=int(exit_code or 0),
        signal=int(signal or 0),
        start=_told(start),
        limit=limit,
        folder=folder,
        cancelled_by=by,
    )


def _told(text: str) -> str:
    return "" if text in _NOTHING else text
