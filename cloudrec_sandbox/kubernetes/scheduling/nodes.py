"""The cluster's nodes: their pools, their objects, their resources."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.node.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

POOL = "cloudrec-sandbox/pool"
VERSION = "v1.37.0"
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_AT_ONCE = "cloud.google.com/gke-accelerator"  # GKE's nodes have the device plugin built in


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A number of equal nodes.

    Attributes:
        name: prefix of their names; for a single node, its whole name.
        count: the number of nodes; None for a single node.
        labels: labels beside the usual ones.
        taints: taints.
        capacity: resources, all of them allocatable at once.
        hardware: gpus, efa, infiniband: cards that become allocatable through a device plugin;
            memlock: bytes that a container may lock; rdma_driver: 1 if the node's image has the kernel
            modules of its InfiniBand cards, without which a driver's pod must load them first; nvme: the
            number of local NVMe disks; temporary_disk: 1 if a temporary disk is mounted at /mnt.
        os_image: the operating system that the nodes report.
        provider_id: what the provider id has before the node's name.
        machine: the cloud's id of a single node's machine. A lost node with one is not replaced here: that is
            the decision of its cloud, which then orders a node with another machine.
    """

    name: str
    count: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, int] = field(default_factory=dict)
    os_image: str = "cloudrec sandbox"
    provider_id: str = "cloudrec-sandbox://"
    machine: str = ""

    @classmethod
    def of(cls, wish: Mapping[str, Any]) -> Pool:
        """Return a pool from JSON; ValueError for an unknown member."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(wish) - known):
            raise ValueError(f"nodes: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        if not wish.get("name"):
            raise ValueError("nodes: each needs a name")
        return cls(**wish)

    def names(self) -> list[str]:
        """Return the nodes' names."""
        return (
            [self.name] if self.count is None else [f"{self.name}-{number}" for number in range(self.count)]
        )

    @property
    def label(self) -> str:
        """Return the pool's name, as its nodes have it in a label."""
        return self.labels.get(POOL, self.name)


DEFAULT = (Pool(name="cpu", count=2, capacity={"cpu": "4", "memory": "16Gi"}),)


class Nodes:
    """Creates and removes nodes."""

    def __init__(self, cluster: Cluster, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self._pools: list[Pool] = []
        self._of: dict[str, Pool] = {}
        self._number = 0
        self._ending: dict[str, bool] = {}  # nodes with a notice: whether they were unwanted since
        self._lost: dict[str, Pool] = {}  # lost nodes that a cloud has not ended yet

    def document(self) -> list[dict[str, Any]]:
        """Return the pools, as /_control shows them."""
        return [{each.name: getattr(pool, each.name) for each in fields(pool)} for pool in self._pools]

    def order(self, wish: object) -> None:
        """Replace all nodes by these; with {"pool": P, "nodes": [...]} only those of P.

        ValueError for anything else, before any change.
        """
        only = None
        if isinstance(wish, dict):
            only, wish = wish.get("pool"), wish.get("nodes")
        if not isinstance(wish, list):
            raise ValueError(f"nodes: {wish!r} is no list of pools")  # noqa: TRY004 - a wrong value of /_control
        pools = [Pool.of({"labels": {POOL: only}, **each} if only else each) for each in wish]
        self.set(pools, only=only)

    def set(self, pools: Sequence[Pool], *, only: str | None = None) -> None:
        """Set the pools, instead of all or of those labelled `only`."""
        kept = [] if only is None else [pool for pool in self._pools if pool.label != only]
        self._pools = [*kept, *pools]
        wanted = {name: pool for pool in self._pools for name in pool.names()}
        self._lost = {name: pool for name, pool in self._lost.items() if wanted.get(name) == pool}
        for name in self._ending:
            self._ending[name] |= wanted.get(name) != self._of.get(name)
        for name in [name for name in self._of if wanted.get(name) != self._of[name]]:
            # A cloud's machine with a notice ends by it, so that its pods have their time.
            if not self._of[name].machine or name not in self._ending:
                self.remove(name)
        for name, pool in wanted.items():
            if name not in self._of and name not in self._lost:
                self.add(name, pool)

    @property
    def lost(self) -> list[str]:
        """The machines of lost nodes that are still ordered."""
        return sorted(pool.machine for pool in self._lost.values())

    def begin_end(self, name: str) -> None:
        """Note that a machine has its notice: a cloud's runs until `end`, whatever nodes are ordered."""
        self._ending.setdefault(name, False)

    def end(self, name: str) -> Pool | None:
        """Stop a lost machine, and keep its Node object; return its pool, or None if it did not run."""
        was_unwanted = self._ending.pop(name, False)
        pool = self.power_off(name)
        if pool is not None and pool.machine and pool in self._pools and not was_unwanted:
            self._lost[name] = pool
        return pool

    def again(self, name: str) -> None:
        """Add a node with a new machine that was ordered while the old one of its name was ending."""
        if name in self._of or name in self._lost:
            return
        for pool in self._pools:
            if pool.machine and name in pool.names():
                self.add(name, pool)

    def restore(self) -> None:
        """Return to the default nodes, after a reset has removed the objects."""
        self._ending.clear()
        self._lost.clear()
        for name in list(self._of):
            self.remove(name)
        self.set(DEFAULT)

    def machine(self, name: str) -> Machine | None:
        """Return the machine of a node that runs; None if it does not."""
        return self._kubelet.machines.get(name)

    def add(self, name: str, pool: Pool) -> None:
        """Add a node."""
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
        """Stop a machine, and keep its Node object; return its pool, or None if it did not run."""
        machine = self._kubelet.machines.get(name)
        if machine is None:
            return None
        self._kubelet.leave(machine)
        return self._of.pop(name, None)

    def remove(self, name: str) -> None:
        """Remove a node, machine and object."""
        self.power_off(name)
        self._of.pop(name, None)
        self._cluster.attempt(lambda: self._cluster.store.delete("nodes", None, name))

    def replace(self, pool: Pool) -> None:
        """Add a new node to a pool, if the pool still exists and has too few."""
        if pool not in self._pools or pool.machine:
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
                "osImage": pool.os_image,
                "systemUUID": secrets.token_hex(16),
            },
        }
