"""Reads the lines of one rank from the logs that the agents upload to the run's storage."""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING

from cloudrec.launchers.base import results
from cloudrec.launchers.base.outputs import ATTEMPT_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cloudrec.launchers.base.results_store import Place
    from cloudrec.launchers.base.runspec import RunSpec

_POLL_S = 0.5
_WHEN = re.compile(r"launch (\d+), attempt \d+, rank \d+ of \d+, (\S+) ===")


class StoredLines:
    """Reads one rank's lines of a run.

    Args:
        spec: the run.
        rank: the rank.
        is_over: returns whether the run has ended.
    """

    def __init__(self, spec: RunSpec, *, rank: int, is_over: Callable[[], bool]) -> None:
        self._place: Place = results.place_of(spec)
        self._name = f"/rank-{rank}.log"
        self._is_over = is_over
        self._read: dict[str, int] = {}  # by file: the number of bytes that were yielded

    def lines(self, *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield the lines; see `Launcher.logs`."""
        over = self._is_over()
        before = self._new(over=over)
        yield from before if tail is None else deque(before, maxlen=tail)
        while follow and not over:
            time.sleep(_POLL_S)
            over = self._is_over()  # before the read, so that the read after it finds everything
            yield from self._new(over=over)

    def _new(self, *, over: bool) -> list[str]:
        """Return the new lines of all files, in the order of their attempts."""
        sizes = self._place.sizes("pods/")
        blocks: list[tuple[tuple[int, str], list[str]]] = []
        for name, size in sizes.items():
            if name.endswith(self._name) and size > self._read.get(name, 0):
                blocks += _attempts(self._rest(name, over=over))
        return [line for _, block in sorted(blocks, key=lambda each: each[0]) for line in block]

    def _rest(self, name: str, *, over: bool) -> str:
        """Return the new whole lines of a file; after the run's end also a last line without an end."""
        data = (self._place.read(name) or b"")[self._read.get(name, 0) :]
        whole = data if over else data[: data.rfind(b"\n") + 1]
        self._read[name] = self._read.get(name, 0) + len(whole)
        return whole.decode("utf-8", errors="replace")


def _attempts(text: str) -> list[tuple[tuple[int, str], list[str]]]:
    """Cut a log's text into attempts, each with its launch and the time at which it began."""
    blocks: list[tuple[tuple[int, str], list[str]]] = []
    for line in text.splitlines():
        match = _WHEN.search(line) if line.startswith(ATTEMPT_HEADER) else None
        if match:
            blocks.append(((int(match[1]), match[2]), [line]))
        elif blocks:
            blocks[-1][1].append(line)
        else:
            blocks.append(((0, ""), [line]))  # of an attempt whose header was yielded before
    return blocks
