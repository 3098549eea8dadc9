"""The ledger of a run: RUN/events.jsonl, one object a line, appended by whoever makes something happen.

Several processes append (the command line, the supervisor, every rank), each line with one write, so lines
never mix. A crash in the middle of a write leaves a part of a line: readers skip it, and the next writer
starts on a new line. What a launcher tells:

    submitted       launcher                        the launch is asked for
    started         pid, command                    the supervisor or the engine has it
    rank_started    attempt, rank, pid              a rank's trainer runs
    rank_ended      attempt, rank, exit_code        it has ended; a negative code is a signal
    restarting      attempt, cause                  the workers are being started again
    running         attempt                         they are at work again
    stop_requested  grace_s                         somebody asked for the end
    stopping        grace_s                         the trainer is being told
    succeeded, failed, interrupted                  the end: cause, attempt, exit_codes, checkpoint
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.home import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class RunState(StrEnum):
    """What a run is doing; the names are TorchX's, plus RESTARTING."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen unless somebody resumes the run."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED)


_STATE_AFTER = {
    "submitted": RunState.PENDING,
    "started": RunState.RUNNING,
    "running": RunState.RUNNING,
    "restarting": RunState.RESTARTING,
    "succeeded": RunState.SUCCEEDED,
    "failed": RunState.FAILED,
    "interrupted": RunState.INTERRUPTED,
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the ledger.

    Args:
        time: seconds since the epoch.
        event: what happened, such as "started" or "rank_ended".
        launch: which launch of the run it belongs to: 1 for the first, one more for each resume.
        details: everything else on the line.
    """

    time: float
    event: str
    launch: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The ledger in one file."""

    path: Path

    def append(self, event: str, *, launch: int, **details: object) -> None:
        """Write one event down; StorageError when the disk refuses."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "launch": launch, **details})
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, ("\n" * torn + line + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def read(self) -> list[Event]:
        """Return every whole event, oldest first; damaged lines are skipped."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(self.path, error) from error
        return [event for event in map(_parse, text.splitlines()) if event is not None]


def last_launch(events: Iterable[Event]) -> int:
    """Return the number of the newest launch, 0 before the first."""
    return max((event.launch for event in events), default=0)


def state_after(events: Iterable[Event]) -> RunState:
    """Return the state that the ledger tells of, PENDING when it tells of none."""
    states = [_STATE_AFTER[event.event] for event in events if event.event in _STATE_AFTER]
    return states[-1] if states else RunState.PENDING


def _parse(line: str) -> Event | None:
    try:
        fields = json.loads(line)
        return Event(
            time=float(fields.pop("time")),
            event=str(fields.pop("event")),
            launch=int(fields.pop("launch")),
            details=fields,
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def refuse_finished(name: str, events: Sequence[Event]) -> None:
    """Refuse to launch again what has come to its end; UsageError.

    Args:
        name: the run's.
        events: its ledger.
    """
    if state_after(events) is RunState.SUCCEEDED:
        raise UsageError(
            f"the run {name!r} has finished: there is nothing left to resume",
            remedy="launch a new run; --name gives it a name",
        )
