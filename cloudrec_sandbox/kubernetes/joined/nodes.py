"""Nodes of another API server: their objects, their leases, and how they are lost."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.scheduling.loss import Losses
from cloudrec_sandbox.kubernetes.scheduling.nodes import Nodes

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.joined.log_server import NodePort
    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.scheduling.nodes import Pool
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

# The kubelet's nodeLeaseDurationSeconds (40) and how often it renews: a quarter of that.
_LEASE_S, _RENEW_S = 40, 10.0
_LEASES = "kube-node-lease"


class JoinedPools(Nodes):
    """Registers and removes nodes, and renews their leases while their machines run."""

    def __init__(self, cluster: Cluster, kubelet: Kubelet, port: NodePort, version: str) -> None:
        super().__init__(cluster, kubelet)
        self._port = port
        self._version = version
        self._addresses: dict[str, str] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew_all, name="leases", daemon=True)
        self._thread.start()

    def add(self, name: str, pool: Pool) -> None:
        """Add a node."""
        super().add(name, pool)
        node = self._cluster.store.get("nodes", None, name) or {}
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        lease = {
            "metadata": {"name": name, "namespace": _LEASES, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_S, "renewTime": _moment()},
        }
        # A lease that an earlier node of this name left is the garbage collector's to remove.
        self._cluster.attempt(self._cluster.store.delete, "leases", _LEASES, name)
        self._cluster.store.create("leases", lease)

    def power_off(self, name: str) -> Pool | None:
        """Stop a machine, and keep its Node object."""
        pool = super().power_off(name)
        address = self._addresses.pop(name, None)
        if address is not None:
            self._port.shut(address)
        return pool

    def close(self) -> None:
        """Stop renewing, and remove all nodes."""
        self._end.set()
        self._thread.join()
        for name in list(self._of):
            self.remove(name)

    def _status(self, name: str, pool: Pool, address: str) -> dict[str, Any]:
        status = super()._status(name, pool, address)
        self._addresses[name] = address
        # Without the type Hostname: API servers prefer it, and no DNS has these names.
        status["addresses"] = [{"type": "InternalIP", "address": address}]
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._port.open(address)}}
        status["nodeInfo"]["kubeletVersion"] = self._version
        return status

    def _renew_all(self) -> None:
        while not self._end.wait(_RENEW_S):
            for name, machine in list(self._kubelet.machines.items()):
                if not machine.is_silent:
                    self._renew(name)

    def _renew(self, name: str) -> None:
        try:
            self._cluster.store.patch("leases", _LEASES, name, {"spec": {"renewTime": _moment()}})
        except (ApiError, OSError):
            return  # it is renewed again soon; the API server allows for some that are missing


class MachineLosses(Losses):
    """Loses machines; what follows in the cluster is its own controllers' work."""

    def _declare_lost(self, name: str, *, stays: bool = False) -> None:
        """Leave it to the node lifecycle controller, and let the cloud's remove the Node object later."""
        if stays:
            return
        self._worker.later(self.timing.removed_s, ("removed", name), lambda: self._remove_object(name))

    def _collect(self, name: str) -> None:
        """Leave the pods of a node that is gone to the pod garbage collector."""


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
