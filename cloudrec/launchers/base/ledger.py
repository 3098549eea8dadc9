"""The ledger of a run: RUN/events.jsonl, one JSON object on each line, appended by the process that acts.

Several processes append (the command line, the supervisor, every rank), each line with one write, so lines
never mix. A crash in the middle of a write leaves a part of a line: readers skip it, and the next writer
starts on a new line. A launcher records:

    submitted       launcher                        the launch was requested
    started         pid, command                    the supervisor or the engine has started it
    rank_started    attempt, rank, pid              a rank's trainer runs
    rank_ended      attempt, rank, exit_code        it has ended; a negative code is a signal
    restarting      attempt, cause                  the workers are being started again
    running         attempt                         they train again
    stop_requested  grace_s                         a user requested the end
    stopping        grace_s                         the trainer was signalled to end
    moved           cluster                         a run of several clusters is in this one now
    succeeded, failed, interrupted                  the end: cause, attempt, exit_codes, checkpoint
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO

from cloudrec.errors import DataError, UsageError
from cloudrec.home import open_file, storage_error
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


# Whole lines of ranks of one attempt, as `append` writes them. One search for them all takes less than half
# of the time of a match for each line. The quantifiers are possessive: no line is tried again.
_LINE = rb'\{"time": [0-9.]++, "event": "rank_(?:started|ended)", %b,[^{}\n]*+\}\n'
_ONE_ATTEMPT = re.compile(
    b"^" + _LINE % rb'("launch": \d++, "attempt": \d++)' + b"(?:" + _LINE % rb"\1" + b")++", re.MULTILINE
)
_LATEST = 32503680000.0  # seconds since the epoch in the year 3000: a later time is damage
_MOST_KNOWN = 256  # ledgers whose events this process keeps
_COMPARED = 256  # bytes at the end of what was read, to see whether it is still there
_NUMBERS = {"pid", "attempt", "rank", "exit_code", "lead"}  # fields that readers use as integers


class RunState(StrEnum):
    """The state of a run; the names are TorchX's, plus RESTARTING."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def is_final(self) -> bool:
        """Whether the state stays as it is until a user resumes the run."""
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
class LedgerEvent:
    """One line of the ledger.

    Args:
        time: seconds since the epoch.
        event: what happened, such as "started" or "rank_ended".
        launch: the number of the launch, 1 for the first; each resume is another launch.
        details: the other fields of the line.
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
        """Append one event; StorageError if the disk refuses it."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "launch": launch, **details})
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                # A writer that was killed may have left a part of a line, without its end.
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, ("\n" * torn + line + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def began(self) -> float | None:
        """Return the time of the first event, from the file's first lines; None without one."""
        try:
            with open_file(self.path) as file:
                first = _events(file.read(_FIRST_BYTES))
        except OSError:
            return None
        return first[0].time if first else None

    def read(self) -> list[LedgerEvent]:
        """Return all events, oldest first, without damaged lines; DataError if the file cannot be read.

        Lines that an earlier call of this process has read are not read again: a supervisor looks at its
        ledger several times a second, for weeks.
        """
        return self._read(_events, "")

    def outline(self) -> list[LedgerEvent]:
        """Return the events as `read` does, but of the ranks of one attempt, as a rule, only the last.

        The state of a run, its times and its attempts are those of all events, and most lines of a long
        ledger are of ranks: they are not parsed.
        """
        return self._read(_outlined, "outline")

    def _read(self, parse: Callable[[bytes], list[LedgerEvent]], kind: str) -> list[LedgerEvent]:
        key = (self.path, kind)
        with _LOCK:
            known = _KNOWN.pop(key, _Read())
            try:
                with open_file(self.path) as file:
                    known, rest = _continued(known, file, parse)
            except FileNotFoundError:
                return []
            except OSError as error:
                raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error
            _KNOWN[key] = known  # the newest is last
            while len(_KNOWN) > _MOST_KNOWN:
                del _KNOWN[next(iter(_KNOWN))]
            return [*known.events, *parse(rest)]


@dataclass(kw_only=True)
class _Read:
    """What was read of a file: whole lines, which are only ever followed by others.

    Attributes:
        inode: the file's number.
        size: the bytes of these lines.
        end: the last of these bytes: they differ in a file that was replaced.
        events: the events of the lines.
    """

    inode: int = 0
    size: int = 0
    end: bytes = b""
    events: list[LedgerEvent] = field(default_factory=list)


_FIRST_BYTES = 1 << 16  # of a ledger, which contain its first event unless they are damaged
_BLOCK_BYTES = 1 << 18  # read at a time: they stay in the processor's cache until they are parsed
_KNOWN: dict[tuple[Path, str], _Read] = {}
_LOCK = threading.Lock()


def _continued(
    known: _Read, file: BinaryIO, parse: Callable[[bytes], list[LedgerEvent]]
) -> tuple[_Read, bytes]:
    """Return what is known with the file's new lines, and the bytes of a last line without an end."""
    inode = os.fstat(file.fileno()).st_ino
    file.seek(max(known.size - len(known.end), 0))
    if known.inode != inode or file.read(len(known.end)) != known.end:
        known = _Read(inode=inode)
        file.seek(0)
    parts = list[bytes]()
    while block := file.read(_BLOCK_BYTES):
        cut = block.rfind(b"\n") + 1
        if not cut:
            parts.append(block)
            continue
        whole = b"".join((*parts, block[:cut]))
        known.events += parse(whole)
        known.size += len(whole)
        known.end = whole[-_COMPARED:]
        parts = [block[cut:]]
    known.inode = inode
    return known, b"".join(parts)


def _events(text: bytes) -> list[LedgerEvent]:
    lines = text.decode("utf-8", errors="replace").splitlines()
    return [event for event in map(_parse, lines) if event is not None]


def _outlined(text: bytes) -> list[LedgerEvent]:
    """Return the events of lines, of consecutive lines of ranks of one attempt only the last."""
    return _events(_ONE_ATTEMPT.sub(_last_line, text))


def _last_line(lines: re.Match[bytes]) -> bytes:
    return lines[0][lines[0].rfind(b"\n", 0, -1) + 1 :]


def last_launch(events: Iterable[LedgerEvent]) -> int:
    """Return the number of the newest launch, 0 before the first."""
    return max((event.launch for event in events), default=0)


def state_after(events: Iterable[LedgerEvent]) -> RunState:
    """Return the state after the last event that changes it; PENDING if none does."""
    states = [_STATE_AFTER[event.event] for event in events if event.event in _STATE_AFTER]
    return states[-1] if states else RunState.PENDING


def _parse(line: str) -> LedgerEvent | None:
    """Return a line's event; None if the line is incomplete or a value is out of range."""
    try:
        # A damaged number, such as 1e400 or one of a million digits, must not stop every later `status`.
        fields = safe_object(line)
        moment, launch = float(fields.pop("time")), int(fields.pop("launch"))
        event = str(fields.pop("event"))
        for name in _NUMBERS & fields.keys():
            if (number := fields.pop(name)) is not None:  # null is as good as absent
                fields[name] = int(number)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    if not 0 <= moment <= _LATEST:
        return None
    return LedgerEvent(time=moment, event=event, launch=launch, details=fields)


def refuse_finished(name: str, events: Sequence[LedgerEvent]) -> None:
    """Raise UsageError if a run has finished.

    Args:
        name: the run's name, for the message.
        events: the run's ledger.
    """
    if state_after(events) is RunState.SUCCEEDED:
        raise UsageError(
            f"the run {name!r} has finished: there is nothing left to resume",
            remedy="launch a new run; --name gives it a name",
        )
