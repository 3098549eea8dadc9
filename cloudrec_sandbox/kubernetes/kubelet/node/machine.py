"""One node as a machine: its hardware, and whether it still runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.node.devices import Devices, Sight
from cloudrec_sandbox.kubernetes.objects.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.kubelet.processes.programs import Program
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

_INFINIBAND_MEMLOCK = (
    65536  # AKS nodes: the memlock limit of containers without IPC_LOCK (aks-rdma-infiniband)
)
_PLAIN = ("cpu", "memory", "pods", "ephemeral-storage")


class Machine:
    """A node's hardware, with what device plugins offer."""

    def __init__(self, cluster: Cluster, name: str, address: str, hardware: Mapping[str, Any]) -> None:
        self.name = name
        self.address = address
        self.hardware = hardware
        self.devices = Devices({key: value for key, value in hardware.items() if isinstance(value, int)})
        self.sights: dict[tuple[str, str], Sight] = {}
        self.is_gone = False
        self.is_silent = False  # it runs, but sends no reports to the cluster
        self._cluster = cluster
        self._plugins: Counter[str] = Counter()
        node = self.object()
        for resource, quantity in (node.get("status", {}).get("capacity") or {}).items():
            if resource not in _PLAIN and not resource.startswith("hugepages-"):
                self.devices.given(resource, int(amount(quantity)))

    @property
    def memlock(self) -> int | None:
        """Return the bytes that an unprivileged container may lock; None for this machine's own limit."""
        limit = self.hardware.get("memlock")
        if limit is not None:
            return int(limit)
        return _INFINIBAND_MEMLOCK if self.hardware.get("infiniband") else None

    def object(self) -> dict[str, Any]:
        """Return its Node object; an empty one if it is gone."""
        return self._cluster.store.get("nodes", None, self.name) or {"metadata": {"name": self.name}}

    @property
    def os_image(self) -> str:
        """Return the operating system that its Node object reports, such as Ubuntu 24.04.3 LTS."""
        return str(self.object().get("status", {}).get("nodeInfo", {}).get("osImage", ""))

    def plug_in(self, program: Program, names: Mapping[str, int]) -> None:
        """Make a device plugin's resources allocatable."""
        self._plugins[program.plugin] += 1
        found = self.devices.offer(program.plugin, names=names)
        if found:
            quantities = {name: str(count) for name, count in found.items()}
            self._write({"capacity": quantities, "allocatable": quantities})

    def plug_out(self, program: Program) -> None:
        """Set a device plugin's resources to 0 allocatable, after it has ended."""
        self._plugins[program.plugin] -= 1
        if self._plugins[program.plugin] == 0 and not self.is_gone:
            self._write({"allocatable": dict.fromkeys(self.devices.offered(program.plugin), "0")})

    def _write(self, status: Mapping[str, Any]) -> None:
        self._cluster.patch_status("nodes", {"metadata": {"name": self.name}}, status)
