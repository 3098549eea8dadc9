"""Follows the logs of runs for any number of pages: one thread for each rank that is looked at."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from cloudrec.errors import CloudrecError
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.observe.logs import read_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launchers.base.run_folder import RunFolder

_KEPT = 20_000  # lines of a rank
_LONGEST = 4_000  # characters of a line
_MOST = 16  # ranks that are followed at a time
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")


class LogLine(NamedTuple):
    """A line and its number, from 1, as far as they were read here."""

    number: int
    text: str


class Follower:
    """The newest lines of one rank of a run."""

    def __init__(self, run: RunFolder, rank: int) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._read = threading.Event()
        self.problem = ""
        self.is_over = False
        lines = read_logs(run, rank=rank, follow=True, tail=_KEPT)  # refuses a rank that there is not
        threading.Thread(target=self._pump, args=(lines,), name=f"log {run.name} {rank}", daemon=True).start()

    def after(self, number: int, *, search: str = "", most: int) -> tuple[list[LogLine], int]:
        """Return the newest lines after one, and the number of the last line that was looked at.

        Args:
            number: the number of the line; 0 for all.
            search: only lines with this text, whatever their case.
            most: how many at most.
        """
        self._read.wait(0.5)  # for the first lines
        wanted = search.casefold()
        with self._lock:
            found = [line for line in self._lines if line.number > number]
        last = found[-1].number if found else number
        if wanted:
            found = [line for line in found if wanted in line.text.casefold()]
        return found[-most:], last

    def _pump(self, lines: Iterator[str]) -> None:
        number = 0
        try:
            for text in lines:
                number += 1
                with self._lock:
                    self._lines.append(LogLine(number, _CONTROL.sub("", text)[:_LONGEST]))
                self._read.set()
        except CloudrecError as error:
            self.problem = error.message
        finally:
            self.is_over = True
            self._read.set()


class Followers:
    """The followers of all runs; one whose log has ended is replaced after a resume."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], Follower] = {}
        self._lock = threading.Lock()

    def of(self, run: RunFolder, rank: int) -> Follower:
        """Return the follower of a rank; UsageError if the run has no such rank."""
        key = (run.name, rank, last_launch(run.ledger.read()))
        with self._lock:
            found = self._known.pop(key, None) or Follower(run, rank)
            self._known[key] = found  # the newest is last
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
            return found
