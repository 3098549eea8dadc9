"""A cluster in virtual time whose pools grow and fail as those of a cloud, for rounds of the keeper.

AKS: a pool that cannot grow is Failed a few minutes later, and stays so until another write. It shows the
nodes that it has, or those that it was to have. GKE shows no size. EKS retries, and shows why it launches
no machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from cloudrec.keeper.managed.keeper import RunKeeper
from cloudrec.keeper.managed.record import ManagedRecord
from cloudrec.keeper.meter import Tariff
from cloudrec.providers.base.protocol import PoolSize

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGAN = 1_800_000_000.0
ROUND_S = 15.0
GROWS_S = 180.0  # AKS, GKE and EKS take two to five minutes as a rule


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


@dataclass
class Pool:
    """A pool: its target, its machines, and how many the cloud has for it."""

    stock: int
    target: int = 0
    machines: int = 0
    due: float | None = None
    problem: str = ""
    joins: bool = True
    has_gpus: bool = True


@dataclass
class FakeCluster:
    """The API server and the cloud. `kind`: aks, aks-requested (shows the requested size), gke or eks."""

    kind: str
    pools: dict[str, Pool]
    grows_s: float = GROWS_S
    now: float = BEGAN
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by run
    leaving: set[str] = field(default_factory=set)
    resizes: list[tuple[float, str, int]] = field(default_factory=list)
    record: ManagedRecord = field(default_factory=ManagedRecord)

    def submit(self, name: str, nodes: int = 2) -> None:
        labels = {"cloudrec/run": name, "cloudrec/nodes": str(nodes)}
        metadata = {"name": name, "uid": name, "creationTimestamp": _iso(self.now), "labels": labels}
        job = {"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata}
        self.jobs[name] = {**job, "spec": {"suspend": False}, "status": {}}

    def start_pods(self, run: str, pool: str) -> None:
        self.pods[run] = [
            {
                "metadata": {"name": f"{run}-{node}", "uid": f"{run}-{node}"},
                "spec": {"nodeName": f"{pool}-{node}", "containers": []},
                "status": {"phase": "Running"},
            }
            for node in range(self.pools[pool].machines)
        ]

    def rounds(self, seconds: float) -> ManagedRecord:
        """Make the keeper's rounds of this time; a new keeper makes each, as after a restart."""
        tariffs = [
            Tariff(pool=pool, capacity="spot", hourly_usd=10.0 + number, gpus=8)
            for number, pool in enumerate(self.pools)
        ]
        end = self.now + seconds
        while self.now < end:
            self._advance()
            keeper = RunKeeper(
                kube=cast("Any", self),
                namespace="cloudrec",
                pool_label="pool",
                tariffs=tariffs,
                unhealthy={},
                most_nodes=4,
                notice_s=30.0,
                resize=self._resize,
                sizes=self._sizes,
                keep=self._keep,
                report=lambda _: None,
            )
            keeper.round(ManagedRecord.of(self.record.to_json()))
            self.now += ROUND_S
        return self.record

    def grown(self, pool: str) -> list[float]:
        """Return when nodes of a pool were requested, in seconds since the beginning."""
        return [at for at, name, nodes in self.resizes if name == pool and nodes]

    # The API server.

    def now_s(self) -> float:
        return self.now

    def list(self, kind: str, *, labels: str = "", **_: Any) -> list[dict[str, Any]]:
        if kind == "Node":
            return [
                self._node(name, index) for name, pool in self.pools.items() for index in range(_nodes(pool))
            ]
        if kind == "Pod":
            run = labels.partition(",")[0].partition("=")[2]
            return [pod for name, pods in self.pods.items() if run in ("", name) for pod in pods]
        return list(self.jobs.values()) if kind.endswith("Job") and "batch" in kind else []

    def patch(self, kind: str, name: str, change: dict[str, Any], **_: Any) -> None:
        if kind == "Node" and "spec" in change:
            (self.leaving.add if change["spec"]["unschedulable"] else self.leaving.discard)(name)

    def delete(self, _kind: str, name: str, **_: Any) -> None:
        self.pods = {
            run: [p for p in pods if p["metadata"]["name"] != name] for run, pods in self.pods.items()
        }

    def logs(self, *_: Any, **__: Any) -> Any:
        return iter(())

    def _node(self, pool: str, index: int) -> dict[str, Any]:
        name = f"{pool}-{index}"
        is_leaving = name in self.leaving
        annotations = {"cloudrec.io/leaving": "true"} if is_leaving else {}
        gpus = {"nvidia.com/gpu": "8"} if self.pools[pool].has_gpus else {}
        return {
            "metadata": {
                "name": name,
                "labels": {"pool": pool},
                "annotations": annotations,
                "creationTimestamp": _iso(BEGAN),
            },
            "spec": {"unschedulable": is_leaving},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": gpus},
        }

    # The cloud.

    def _keep(self, record: ManagedRecord) -> None:
        self.record = record

    def _resize(self, name: str, nodes: int) -> str:
        pool = self.pools[name]
        if self.kind.startswith("aks") and pool.due is not None:
            return "AKS is still changing it"
        if nodes == pool.target and pool.due is not None:
            return ""
        self.resizes.append((self.now - BEGAN, name, nodes))
        pool.target, pool.problem, pool.due = nodes, "", self.now + self.grows_s
        return ""

    def _sizes(self) -> Sequence[PoolSize]:
        return [
            PoolSize(
                name=name,
                nodes=None if self.kind == "gke" else self._shown(pool),
                problem=pool.problem,
                is_retried=not self.kind.startswith("aks"),
                is_changing=self.kind.startswith("aks") and pool.due is not None,
            )
            for name, pool in self.pools.items()
        ]

    def _shown(self, pool: Pool) -> int:
        return pool.machines if self.kind == "aks" and pool.problem else pool.target

    def _advance(self) -> None:
        for pool in self.pools.values():
            if pool.due is not None and self.now >= pool.due:
                pool.machines = min(pool.target, pool.stock)
                is_short = pool.machines < pool.target
                pool.problem = "AllocationFailed" if is_short and self.kind != "gke" else ""
                pool.due = self.now + self.grows_s if is_short and not self.kind.startswith("aks") else None


def _nodes(pool: Pool) -> int:
    return pool.machines if pool.joins else 0
