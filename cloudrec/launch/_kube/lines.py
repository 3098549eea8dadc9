"""The lines of one rank, out of the logs of the pods that it has lived in, one after the other."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.kube.errors import AbsentError, InvalidError, OverloadedError, UnreachableError
from cloudrec.launch._kube.judge import is_over
from cloudrec.launch._remote import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.launch._kube.seeking import RankPods
    from cloudrec.launch.runspec import RunSpec

_PAUSE_S = 0.5


@dataclass
class _Mark:
    """Up to where a pod's log was read: the time of the last line, and how many lines had that time."""

    moment: str = ""
    lines: int = 0

    def begin(self) -> _Mark:
        """Return what tells lines that were read before from others, as the log is read once more."""
        return _Mark(moment=self.moment, lines=self.lines)

    def passes(self, moment: str) -> bool:
        """Tell whether a line was not read before."""
        if moment < self.moment:
            return False
        if moment == self.moment and self.lines:
            self.lines -= 1
            return False
        return True

    def note(self, moment: str) -> None:
        """Remember a line; where a clock was set back the latest time stands."""
        if moment > self.moment:
            self.moment, self.lines = moment, 0
        self.lines += moment == self.moment


class RankLog:
    """Reads one rank's lines of a run.

    Args:
        pods: the run's pods.
        spec: the run.
        rank: whose lines.
        is_over: tells whether the run has ended.
    """

    def __init__(self, pods: RankPods, spec: RunSpec, *, rank: int, is_over: Callable[[], bool]) -> None:
        self._pods, self._spec, self._rank, self._is_over = pods, spec, rank, is_over
        self._prefix = f"[rank {rank}] "
        self._told: dict[str, _Mark] = {}  # by uid of each pod that was read: up to where

    def lines(self, *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield the lines; see `Launcher.logs`."""
        before = self._now(tail)
        if tail is None:
            yield from before
        else:
            yield from deque(before, maxlen=tail)
        if follow:
            yield from self._following()

    def _now(self, tail: int | None) -> Iterator[str]:
        """Yield what is there: of pods that are gone what they kept, then of those that are there."""
        near = self._pods.near()
        here = self._pods.found(near)
        if tail is None or not here or tail > 0:
            yield from self._gone([*near, *here])
        for pod in here:
            yield from self._of(pod, follow=False, tail=tail)

    def _following(self) -> Iterator[str]:
        while True:
            over = self._is_over()
            try:
                here = self._pods.found(self._pods.near())
            except (UnreachableError, OverloadedError):  # this machine slept, or the server is not well
                time.sleep(_PAUSE_S)
                continue
            found = [pod for pod in here if not over or not self._is_read(pod)]
            newest = found[-1:] if not over else found
            for pod in newest:
                yield from self._of(pod, follow=not over and not is_over(pod), tail=None)
            if over:
                return
            time.sleep(_PAUSE_S)

    def _is_read(self, pod: Mapping[str, Any]) -> bool:
        return False if pod["metadata"]["uid"] not in self._told else not is_over(pod)

    def _gone(self, seen: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what pods have kept that are gone; all are listed only if one was not seen."""
        try:
            kept = set(results.pods_with(self._spec, self._rank)) - _kept_as(seen)
            kept -= _kept_as(self._pods.all()) if kept else set()
            texts = [results.kept_lines(self._spec, name, self._rank) for name in sorted(kept)]
        except CloudrecError:  # without the store there are the pods that are there
            return
        for text in sorted(texts, key=_begun):
            yield from text

    def _of(self, pod: Mapping[str, Any], *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield one pod's lines of the rank that were not read before."""
        mark = self._told.setdefault(pod["metadata"]["uid"], _Mark())
        wanted: deque[str] = deque(maxlen=tail)
        before = mark.begin()
        try:
            for line in self._pods.log(pod, follow=follow, since=mark.moment, timestamps=True):
                moment, _, text = line.partition(" ")
                if not before.passes(moment):
                    continue
                mark.note(moment)
                if not text.startswith(self._prefix):
                    continue
                if follow or tail is None:
                    yield text.removeprefix(self._prefix)
                else:
                    wanted.append(text.removeprefix(self._prefix))
        except (UnreachableError, OverloadedError):
            if not follow:
                raise
        except (AbsentError, InvalidError):
            pass  # it is gone, or has not begun
        yield from wanted


def _kept_as(pods: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names under which pods keep what they leave."""
    return {f"{pod['metadata']['name']}-{pod['metadata']['uid']}" for pod in pods}


def _begun(lines: Sequence[str]) -> str:
    """Return when the first attempt in a rank's lines began, as its header says it."""
    header = next((line for line in lines if line.startswith("=== launch ")), "")
    return header.rpartition(", ")[2]
