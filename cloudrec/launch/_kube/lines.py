"""The lines of one rank, out of the logs of the pods that it has lived in, one after the other."""

from __future__ import annotations

import re
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

    from cloudrec.kube.client import Kube
    from cloudrec.launch.runspec import RunSpec

_SILENT_S = 20.0  # without a line, after which it is looked again where the rank is
_PAUSE_S = 0.5
_DIGITS = re.compile(r"(\d+)")
_HEADER = re.compile(r"\[rank (\d+)\] === launch ")


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
        kube: the cluster.
        spec: the run.
        namespace: where its pods are.
        rank: whose lines.
        pods: lists the run's pods that train, of all launches.
        is_over: tells whether the run has ended.
    """

    def __init__(
        self,
        kube: Kube,
        spec: RunSpec,
        *,
        namespace: str,
        rank: int,
        pods: Callable[[], Sequence[Mapping[str, Any]]],
        is_over: Callable[[], bool],
    ) -> None:
        self._kube, self._spec, self._namespace = kube, spec, namespace
        self._rank, self._pods, self._is_over = rank, pods, is_over
        self._prefix = f"[rank {rank}] "
        self._told: dict[str, _Mark] = {}  # by uid of each pod that was read: up to where
        self._elsewhere: set[str] = set()  # uids of pods that were looked at and have other ranks

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
        pods = list(self._pods())
        here = self._with_rank(pods)
        if tail is None or not here or tail > 0:
            yield from self._gone(pods)
        for pod in here:
            yield from self._of(pod, follow=False, tail=tail)

    def _following(self) -> Iterator[str]:
        while True:
            over = self._is_over()
            try:
                pods = list(self._pods())
            except (UnreachableError, OverloadedError):  # this machine slept, or the server is not well
                time.sleep(_PAUSE_S)
                continue
            found = [pod for pod in self._with_rank(pods) if not over or not self._is_read(pod)]
            newest = found[-1:] if not over else found
            for pod in newest:
                yield from self._of(pod, follow=not over and not is_over(pod), tail=None)
            if over:
                return
            time.sleep(_PAUSE_S)

    def _is_read(self, pod: Mapping[str, Any]) -> bool:
        return False if pod["metadata"]["uid"] not in self._told else not is_over(pod)

    def _gone(self, pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        present = {f"{pod['metadata']['name']}-{pod['metadata']['uid']}" for pod in pods}
        try:
            kept = [name for name in results.pods_with(self._spec, self._rank) if name not in present]
            texts = [results.kept_lines(self._spec, name, self._rank) for name in kept]
        except CloudrecError:  # without the store there are the pods that are there
            return
        for text in sorted(texts, key=_begun):
            yield from text

    def _with_rank(self, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the pods that have printed lines of the rank, oldest first, asking as few as may be."""
        by_launch = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
        expected = self._expected(pods)
        if any(self._has_rank(pod) for pod in expected):
            chosen = expected
        else:
            chosen = [pod for pod in by_launch if self._has_rank(pod)]
        return [pod for pod in by_launch if pod in chosen]

    def _expected(self, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the pods where the rank should be: ranks go by the order of the pods' names as text."""
        names = sorted({pod["metadata"]["name"] for pod in pods}, key=_as_host)
        hosts: dict[str, list[Mapping[str, Any]]] = {}
        for pod in pods:
            hosts.setdefault(_host(pod), []).append(pod)
        order = sorted(hosts, key=_as_host)
        position = self._rank // self._spec.nproc_per_node
        return hosts[order[position]] if names and position < len(order) else []

    def _has_rank(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether a pod's log has a line of the rank; one without any may get some later."""
        uid = pod["metadata"]["uid"]
        if uid in self._told:
            return True
        if uid in self._elsewhere:
            return False
        ranks = set()
        try:
            for line in self._log(pod, follow=False):
                if line.startswith(self._prefix):
                    return True
                if found := _HEADER.match(line):
                    ranks.add(found[1])
                if len(ranks) >= self._spec.nproc_per_node:
                    break
        except CloudrecError:
            return False
        if ranks and is_over(pod):
            self._elsewhere.add(uid)
        return False

    def _of(self, pod: Mapping[str, Any], *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield one pod's lines of the rank that were not read before."""
        mark = self._told.setdefault(pod["metadata"]["uid"], _Mark())
        wanted: deque[str] = deque(maxlen=tail)
        before = mark.begin()
        try:
            for line in self._log(pod, follow=follow, since=mark.moment, timestamps=True):
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

    def _log(
        self, pod: Mapping[str, Any], *, follow: bool, since: str = "", timestamps: bool = False
    ) -> Iterator[str]:
        return self._kube.logs(
            pod["metadata"]["name"],
            namespace=self._namespace,
            container=container_of(pod),
            follow=follow,
            since_time=since,
            timestamps=timestamps,
            read_s=_SILENT_S,
        )


def container_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the container that trains: the first one; those before it are sidecars."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("name", ""))


def _host(pod: Mapping[str, Any]) -> str:
    """Return the name under which a pod's peers know it, which the pod in its place has, too."""
    return str((pod.get("spec") or {}).get("hostname") or pod["metadata"]["name"])


def _as_host(name: str) -> str:
    return f"{name}."  # what follows in the pod's name in DNS, and decides between run-1 and run-10


def _begun(lines: Sequence[str]) -> str:
    """Return when the first attempt in a rank's lines began, as its header says it."""
    header = next((line for line in lines if line.startswith("=== launch ")), "")
    return header.rpartition(", ")[2]
