"""Reads the lines of one rank from the logs of the pods that it has run in, one after the other."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.errors import AbsentError, ApiUnreachableError, InvalidError, OverloadedError
from cloudrec.kubernetes.client.wire import brief
from cloudrec.launchers.base import results
from cloudrec.launchers.kubernetes.context import LOOK_S
from cloudrec.launchers.kubernetes.run_state import is_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.watch.seeking import RankPods

    Pod = Mapping[str, Any]

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.5


@dataclass
class _Mark:
    """The position up to which a pod's log was read: the last line's time, and how many lines had that time.

    The API can return a log from a time on, but not from a line on, and several lines may have one time.
    """

    moment: str = ""
    lines: int = 0

    def begin(self) -> _Mark:
        """Return a copy whose `passes` skips the lines that were read before."""
        return _Mark(moment=self.moment, lines=self.lines)

    def passes(self, moment: str) -> bool:
        """Return whether a line is new."""
        if moment < self.moment:
            return False
        if moment == self.moment and self.lines:
            self.lines -= 1
            return False
        return True

    def note(self, moment: str) -> None:
        """Count a line. A time before the last one does not count: the node's clock was set back."""
        if moment > self.moment:
            self.moment, self.lines = moment, 0
        self.lines += moment == self.moment


class KubernetesRankLog:
    """Reads one rank's lines of a run.

    Args:
        pods: the run's pods.
        spec: the run.
        rank: the rank.
        is_over: returns whether the run has ended.
    """

    def __init__(self, pods: RankPods, spec: RunSpec, *, rank: int, is_over: Callable[[], bool]) -> None:
        self._pods, self._spec, self._rank, self._is_over = pods, spec, rank, is_over
        self._prefix = f"[rank {rank}] "
        self._marks: dict[str, _Mark] = {}  # by uid of each pod that was read

    def lines(
        self, *, follow: bool, tail: int | None, stored: Callable[[], Iterator[str]] | None = None
    ) -> Iterator[str]:
        """Yield the lines; see `Launcher.logs`.

        Args:
            follow: continue until the run ends.
            tail: number of present lines to begin with; None for all of them.
            stored: yields the lines in the run's storage, if the cluster does not answer; None without one.
        """
        try:
            with brief(LOOK_S):
                near = self._pods.near()
                here = self._pods.found(near)
        except ApiUnreachableError as error:
            if stored is None:
                raise
            _LOG.warning("%s; these are the lines in the run's storage", error.message)
            yield from stored()
            return
        before = self._now(tail, near, here)
        if tail is None:
            yield from before
        else:
            yield from deque(before, maxlen=tail)
        if follow:
            yield from self._following()

    def _now(self, tail: int | None, near: Sequence[Pod], here: Sequence[Pod]) -> Iterator[str]:
        """Yield the present lines: from the storage those of deleted pods, then those of the other pods."""
        if tail is None or not here or tail > 0:
            yield from self._gone([*near, *here])
        for pod in here:
            yield from self._of(pod, follow=False, tail=tail)

    def _following(self) -> Iterator[str]:
        while True:
            over = self._is_over()
            try:
                here = self._pods.found(self._pods.near())
            except (ApiUnreachableError, OverloadedError):  # as after this machine has slept: try again
                time.sleep(_PAUSE_S)
                continue
            found = [pod for pod in here if not over or not self._is_read(pod)]
            # While the run lasts, the rank prints in its newest pod only.
            newest = found[-1:] if not over else found
            for pod in newest:
                yield from self._of(pod, follow=not over and not is_over(pod), tail=None)
            if over:
                return
            time.sleep(_PAUSE_S)

    def _is_read(self, pod: Mapping[str, Any]) -> bool:
        return False if pod["metadata"]["uid"] not in self._marks else not is_over(pod)

    def _gone(self, seen: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield the lines in the storage of pods that are deleted.

        Args:
            seen: pods that exist; all pods are listed only if the storage has lines of another one.
        """
        try:
            kept = set(results.pods_with(self._spec, self._rank)) - _kept_as(seen)
            kept -= _kept_as(self._pods.all()) if kept else set()
            texts = [results.kept_lines(self._spec, name, self._rank) for name in sorted(kept)]
        except CloudrecError:  # without the store, the lines of the existing pods are still useful
            return
        for text in sorted(texts, key=_begun):
            yield from text

    def _of(self, pod: Mapping[str, Any], *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield the new lines of the rank from one pod."""
        mark = self._marks.setdefault(pod["metadata"]["uid"], _Mark())
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
        except (ApiUnreachableError, OverloadedError):
            if not follow:
                raise
        except (AbsentError, InvalidError):
            pass  # the pod is deleted, or its container has not started
        yield from wanted


def _kept_as(pods: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of pods' folders in the storage."""
    return {f"{pod['metadata']['name']}-{pod['metadata']['uid']}" for pod in pods}


def _begun(lines: Sequence[str]) -> str:
    """Return the time at which the first attempt in a rank's lines began, from its header; "" without one."""
    header = next((line for line in lines if line.startswith("=== launch ")), "")
    return header.rpartition(", ")[2]
