"""Finds the pods that a rank has run in, by reading the logs of as few pods as possible.

torchrun numbers the ranks by the nodes' names, sorted as text. So where pods have numbers, the number of a
rank's pod is known. Where ranks follow the network's topology, the pods are sorted by the same keys as the
agents'. If the rank is not in that pod, since fewer nodes train than were requested, a binary
search over the others finds it.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes import topology
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.launchers.kubernetes import submit
from cloudrec.launchers.kubernetes.run_state import is_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator

    Pod = Mapping[str, Any]

_SILENT_S = 20.0  # after this time without a line, the rank may have moved to another pod
_WIDE_S = 10.0  # between two searches of all pods while the expected pod has printed nothing
_AT_A_TIME = 8  # logs that are read at the same time
_HEADER = re.compile(r"\[rank (\d+)\] === launch ")


class RankPods:
    """Finds the pods of one rank of a run.

    Args:
        kube: the cluster.
        engine: the operator that made the pods.
        spec: the run.
        namespace: the namespace of its pods.
        rank: the rank.
    """

    def __init__(self, kube: Kube, engine: JobOperator, spec: RunSpec, *, namespace: str, rank: int) -> None:
        self._kube, self._engine, self._spec, self._namespace = kube, engine, spec, namespace
        self._rank = rank
        self._with: set[str] = set()  # uids of pods that have printed lines of the rank
        self._elsewhere: set[str] = set()  # uids of pods that have ended without a line of the rank
        self._searched = float("-inf")
        self._places: dict[str, str] | None = None  # of nodes in the network; None before they are read

    def all(self) -> list[dict[str, Any]]:
        """Return the run's pods that train, of all launches."""
        return submit.pods_of(self._kube, self._spec.name, self._namespace)

    def near(self) -> list[dict[str, Any]]:
        """Return the pods that have the rank if all nodes train; none if pods have no numbers."""
        if not self._engine.index_label:
            return []
        if self._is_ordered:
            hosts = self._hosts(self.all())
            position = self._rank // self._spec.nproc_per_node
            order = self._order(hosts)
            return hosts[order[position]] if position < len(order) else []
        number = _numbers(self._spec.nodes)[self._rank // self._spec.nproc_per_node]
        own = {self._engine.index_label: str(number)}
        return submit.pods_of(self._kube, self._spec.name, self._namespace, labels=own)

    def found(self, near: Sequence[Pod]) -> list[Pod]:
        """Return the pods that have printed lines of the rank, oldest first.

        Args:
            near: the result of `near`; if one of these has the rank, no other log is read.
        """
        if any(self.has_rank(pod) for pod in near):
            return _by_age(near)
        if near and time.monotonic() - self._searched < _WIDE_S:
            return []
        self._searched = time.monotonic()
        known = {pod["metadata"]["uid"] for pod in near}
        others = [pod for pod in self.all() if pod["metadata"]["uid"] not in known]
        found = self._halved(others) if self._engine.index_label else None
        return _by_age(self._one_by_one(others) if found is None else found)

    def has_rank(self, pod: Pod) -> bool:
        """Return whether a pod's log has a line of the rank now."""
        uid = pod["metadata"]["uid"]
        if uid not in self._with and uid not in self._elsewhere:
            self._ranks(pod)
        return uid in self._with

    def log(self, pod: Pod, *, follow: bool, since: str = "", timestamps: bool = False) -> Iterator[str]:
        """Yield the lines of the container that trains."""
        return self._kube.logs(
            pod["metadata"]["name"],
            namespace=self._namespace,
            container=container_of(pod),
            follow=follow,
            since_time=since,
            timestamps=timestamps,
            read_s=_SILENT_S,
        )

    def _halved(self, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        """Return the pods with the rank, by binary search; None if ranks and names differ in order."""
        hosts = self._hosts(pods)
        order = self._order(hosts)
        low, high = 0, len(order)
        while low < high:
            position, ranks = self._nearest_begun(order, hosts, low, high)
            if not ranks:
                return []
            if self._rank in ranks:
                return hosts[order[position]]
            if min(ranks) < self._rank < max(ranks):
                return None
            low, high = (low, position) if self._rank < min(ranks) else (position + 1, high)
        return []

    @property
    def _is_ordered(self) -> bool:
        return isinstance(self._spec.target, ClusterTarget) and bool(self._spec.target.topology)

    def _hosts(self, pods: Sequence[Pod]) -> dict[str, list[dict[str, Any]]]:
        """Return the pods of each host, oldest first."""
        hosts: dict[str, list[dict[str, Any]]] = {}
        for pod in _by_age(pods):
            hosts.setdefault(host_of(pod), []).append(dict(pod))
        return hosts

    def _order(self, hosts: Mapping[str, Sequence[Pod]]) -> list[str]:
        """Return the hosts in the order of their ranks."""
        if not self._is_ordered:
            return sorted(hosts, key=as_host)
        if self._places is None:
            self._places = topology.places_in(self._kube, self._namespace)
        places = self._places

        def place(host: str) -> str:
            return topology.key(places, (hosts[host][-1].get("spec") or {}).get("nodeName", ""), host)

        return sorted(hosts, key=place)

    def _nearest_begun(
        self, order: Sequence[str], hosts: Mapping[str, Sequence[Pod]], low: int, high: int
    ) -> tuple[int, set[int]]:
        """Return the host nearest to the middle whose newest pod has printed ranks, and these ranks."""
        middle = (low + high) // 2
        for position in sorted(range(low, high), key=lambda each: abs(each - middle)):
            if ranks := self._ranks(hosts[order[position]][-1]):
                return position, ranks
        return middle, set()

    def _one_by_one(self, pods: Sequence[Pod]) -> list[Pod]:
        with ThreadPoolExecutor(max_workers=_AT_A_TIME) as pool:
            has = list(pool.map(self.has_rank, pods))
        return [pod for pod, it_has in zip(pods, has, strict=True) if it_has]

    def _ranks(self, pod: Pod) -> set[int]:
        """Return the ranks in a pod's log; only the wanted rank as soon as a line of it is found."""
        ranks: set[int] = set()
        uid, prefix = pod["metadata"]["uid"], f"[rank {self._rank}] "
        try:
            for line in self.log(pod, follow=False):
                if line.startswith(prefix):
                    self._with.add(uid)
                    return {self._rank}
                if header := _HEADER.match(line):
                    ranks.add(int(header[1]))
                if len(ranks) >= self._spec.nproc_per_node:
                    break
        except CloudrecError:  # its container has not started, or its node does not answer
            return set()
        if ranks and is_over(pod):
            self._elsewhere.add(uid)
        return ranks


def container_of(pod: Pod) -> str:
    """Return the name of the container that trains: the first one. Sidecars are init containers."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("name", ""))


def host_of(pod: Pod) -> str:
    """Return a pod's host name, which the pod that replaces it has, too."""
    return str((pod.get("spec") or {}).get("hostname") or pod["metadata"]["name"])


def as_host(name: str) -> str:
    """Return the key by which hosts are sorted."""
    # torchrun sorts full names in DNS. There, a dot follows the host name, which sorts run-1 before run-10.
    return f"{name}."


def _numbers(nodes: int) -> list[int]:
    """Return the pods' numbers in the order of their names, which differ in the number only."""
    return sorted(range(nodes), key=lambda number: as_host(str(number)))


def _by_age(pods: Sequence[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
