"""Reads jobs from the output of squeue, and from that of sacct once the queue has forgotten them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE_FIELDS = (
    *("JobID", "State", "Reason", "NodeList", "exit_code", "RestartCnt", "StartTime", "TimeLimit"),
    "WorkDir",
)
# Slurm 22.05 has no field for restarts: each restart is another record. WorkDir is the last field, since a
# folder's name may contain the separator.
RECORD_FIELDS = ("JobIDRaw", "Submit", "State", "ExitCode", "NodeList", "Start", "Timelimit", "WorkDir")
_NOTHING = ("None", "(null)", "n/a", "N/A", "None assigned", "Unknown")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as Slurm reports it.

    Args:
        id: its number.
        state: Slurm's state, such as RUNNING or NODE_FAIL.
        reason: why it waits or ended; only the queue has it.
        nodes: its nodes, in Slurm's notation.
        exit_code: its script's exit code.
        signal: the signal that ended it; 0 for none.
        restarts: how often it was put back into the queue.
        start: the time of its start, past or expected.
        limit: its time limit, in Slurm's notation.
        folder: its working directory.
        cancelled_by: the user that cancelled it; only the accounting has it.
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
    """Return the jobs in squeue's output for QUEUE_FIELDS."""
    rows = (line.split("|") for line in text.splitlines())
    return [_queued([each.strip() for each in row]) for row in rows if len(row) > len(QUEUE_FIELDS)]


def recorded(text: str) -> Job | None:
    """Return the job in sacct's output for RECORD_FIELDS with duplicates; None if there is none.

    A job that was put back into the queue has a record for each time that it ran. Slurm uses numbers again,
    so records of another folder are of an earlier job with the same number.
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
        reason=_text_of(reason),
        nodes=_text_of(nodes),
        exit_code=status >> 8,  # the status of wait(): exit code and signal in one number
        signal=status & 0x7F,
        restarts=int(restarts) if restarts.isdigit() else 0,
        start=_text_of(start),
        limit=limit,
        folder=folder,
    )


def _recorded(columns: Sequence[str]) -> Job:
    number, _, words, code, nodes, start, limit, folder = columns
    state, _, by = words.partition(" by ")  # as in "CANCELLED by 1000"
    exit_code, _, signal = code.partition(":")
    return Job(
        id=int(number),
        state=state,
        nodes=_text_of(nodes),
        exit_code=int(exit_code or 0),
        signal=int(signal or 0),
        start=_text_of(start),
        limit=limit,
        folder=folder,
        cancelled_by=by,
    )


def _text_of(text: str) -> str:
    return "" if text in _NOTHING else text
