"""Reads the lines of one rank from the outputs of the agents of all launches."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cloudrec.launchers.base.results_store import Place

_FOLDER = "slurm/out"
_POLL_S = 0.5


class SlurmRankLog:
    """Reads one rank's lines. A node's output has the lines of all its ranks, each with its rank in front.

    Args:
        place: the run's folder.
        rank: the rank.
    """

    def __init__(self, place: Place, rank: int) -> None:
        self._place, self._prefix = place, f"[rank {rank}] ".encode()
        self._read: dict[str, int] = {}  # by file: bytes that were read

    def lines(self, *, follow: bool, tail: int | None, is_over: Callable[[], bool]) -> Iterator[str]:
        """Yield the lines; see `Launcher.logs`."""
        before = self._new(whole=not follow)
        yield from before if tail is None else deque(before, maxlen=tail)
        while follow:
            over = is_over()  # before the read, so that the read after it finds everything
            yield from self._new(whole=over)
            if over:
                return
            time.sleep(_POLL_S)

    def _new(self, *, whole: bool) -> Iterator[str]:
        """Yield the lines that were written since the last call.

        Args:
            whole: also yield a last line without a line end.
        """
        sizes = self._place.sizes(f"{_FOLDER}/")
        for name in sorted((name for name in sizes if sizes[name] > self._read.get(name, 0)), key=_order):
            begin = self._read.get(name, 0)
            data = self._place.read(name, start=begin) or b""
            end = len(data) if whole else data.rfind(b"\n") + 1
            self._read[name] = begin + end
            for line in data[:end].splitlines():
                if line.startswith(self._prefix):
                    yield line.removeprefix(self._prefix).decode("utf-8", errors="replace")


def _order(name: str) -> list[int]:
    """Return the sort key of an output: launch, job, number of requeues, step and task."""
    parts = name.rpartition("/")[2].split(".")
    return [int(part) if part.isdigit() else 0 for part in parts]
