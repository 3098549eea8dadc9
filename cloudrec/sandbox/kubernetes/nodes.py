"""The cluster's nodes: which there are, how they come, what they have."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.kubelet.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.sandbox.kubernetes.cluster import Cluster
    from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet

POOL = "cloudrec-sandbox/pool"
VERSION = "v1.37.0"
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_AT_ONCE = "cloud.google.com/gke-accelerator"  # GKE's nodes come with their plugin


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes that are alike.

    Attributes:
        name: what their names begin with; of a single node, its whole name.
        count: how many.
        labels: labels beside the usual ones.
        taints: taints.
        capacity: resources, all of them allocatable at once.
        hardware: gpus, efa, infiniband: cards that become allocatable through a device plugin;
            memlock: bytes that a container may lock.
        provider_id: what the cloud calls them, before the node's name.
    """

    name: str
    count: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, int] = field(default_factory=dict)
    provider_id: str = "cloudrec-sandbox://"

    @classmethod
    def of(cls, wish: Mapping[str, Any]) -> Pool:
        """Read one; ValueError for what there is not."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(wish) - known):
            raise ValueError(f"nodes: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        if not wish.get("name"):
            raise ValueError("nodes: each needs a name")
        return cls(**wish)

    def names(self) -> list[str]:
        """The nodes' names."""
        return (
            [self.name] if self.count is None else [f"{self.name}-{number}" for number in range(self.count)]
        )

    @property
    def label(self) -> str:
        """The pool's name, as its nodes carry it."""
        return self.labels.get(POOL, self.name)


DEFAULT = (Pool(name="cpu", count=2, capacity={"cpu": "4", "memory": "16Gi"}),)


class Nodes:
    """Makes nodes and takes them away."""

    def __init__(self, cluster: Cluster, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self._pools: list[Pool] = []
        self._of: dict[str, Pool] = {}
        self._number = 0

    def document(self) -> list[dict[str, Any]]:
        """The pools, as /_control tells of them."""
        return [{each.name: getattr(pool, each.name) for each in fields(pool)} for pool in self._pools]

    def order(self, wish: object) -> None:
        """Have exactly these nodes; with {"pool": P, "nodes": [...]} the others than P's stay.

        ValueError for what is no such wish, before anything has changed.
        """
        only = None
        if isinstance(wish, dict):
            only, wish = wish.get("pool"), wish.get("nodes")
        if not isinstance(wish, list):
            raise ValueError(f"nodes: {wish!r} is no list of pools")  # noqa: TRY004 - the wish is wrong
        pools = [Pool.of({"labels": {POOL: only}, **each} if only else each) for each in wish]
        self.set(pools, only=only)

    def set(self, pools: Sequence[Pool], *, only: str | None = None) -> None:
        """Have these pools, in the place of all or of those labelled `only`."""
        kept = [] if only is None else [pool for pool in self._pools if pool.label != only]
        self._pools = [*kept, *pools]
        wanted = {name: pool for pool in self._pools for name in pool.names()}
        for name in [name for name in self._of if wanted.get(name) != self._of[name]]:
            self.remove(name)
        for name, pool in wanted.items():
            if name not in self._of:
                self.add(name, pool)

    def restore(self) -> None:
        """Make the nodes anew whose objects a reset took away."""
        for name in list(self._of):
            self.remove(name)
        self.set(DEFAULT)

    def machine(self, name: str) -> Machine | None:
        """A node that is up."""
        return self._kubelet.machines.get(name)

    def add(self, name: str, pool: Pool) -> None:
        """Have a node join."""
        self._number += 1
        address = f"127.63.{self._number // 250 % 250}.{self._number % 250 + 1}"
        self._of[name] = pool
        if self._cluster.store.get("nodes", None, name) is not None:
            self._cluster.store.delete("nodes", None, name)
        node = self._cluster.store.create("nodes", self._object(name, pool, address))
        self._cluster.patch_status("nodes", node, self._status(name, pool, address))
        machine = Machine(self._cluster, name, address, pool.hardware)
        self._kubelet.join(machine)
        for reason, text in (
            ("Starting", "Starting kubelet."),
            ("NodeReady", f"Node {name} status is now: NodeReady"),
        ):
            self._cluster.event(node, reason, text, source="kubelet", host=name)
        self._cluster.event(
            node,
            "RegisteredNode",
            f"Node {name} event: Registered Node {name} in Controller",
            source="node-controller",
        )

    def power_off(self, name: str) -> Pool | None:
        """A machine stops; its object stays, for whoever removes that. Its pool, where it was up."""
        machine = self._kubelet.machines.get(name)
        if machine is None:
            return None
        self._kubelet.leave(machine)
        return self._of.pop(name, None)

    def remove(self, name: str) -> None:
        """A node goes, machine and object."""
        self.power_off(name)
        self._of.pop(name, None)
        self._cluster.attempt(lambda: self._cluster.store.delete("nodes", None, name))

    def replace(self, pool: Pool) -> None:
        """Have a new node of a pool join, where the pool is still wanted and lacks one."""
        if pool not in self._pools:
            return
        have = sum(each is pool for each in self._of.values())
        if have < len(pool.names()):
            self.add(f"{pool.name}-{secrets.token_hex(3)}", pool)

    @staticmethod
    def _object(name: str, pool: Pool, address: str) -> dict[str, Any]:
        usual = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            POOL: pool.name,
        }
        spec: dict[str, Any] = {"providerID": f"{pool.provider_id}{name}"}
        if pool.taints:
            spec["taints"] = [dict(taint) for taint in pool.taints]
        return {
            "metadata": {
                "name": name,
                "labels": {**usual, **pool.labels},
                "annotations": {"alpha.kubernetes.io/provided-node-ip": address},
            },
            "spec": spec,
        }

    def _status(self, name: str, pool: Pool, address: str) -> dict[str, Any]:
        capacity = {
            "cpu": "4",
            "memory": "16Gi",
            "pods": "110",
            "ephemeral-storage": "100Gi",
            **pool.capacity,
        }
        if _AT_ONCE in pool.labels and pool.hardware.get("gpus"):
            capacity["nvidia.com/gpu"] = str(pool.hardware["gpus"])
        now = self._cluster.timestamp()
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, status, reason, message in _HEALTHY
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": secrets.token_hex(16),
                "containerRuntimeVersion": "containerd://2.1.0",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": VERSION,
                "kubeletVersion": VERSION,
                "machineID": secrets.token_hex(16),
                "operatingSystem": "linux",
                "osImage": "cloudrec sandbox",
                "systemUUID": secrets.token_hex(16),
            },
        }
