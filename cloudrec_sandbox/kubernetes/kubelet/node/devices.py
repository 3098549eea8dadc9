"""A node's GPUs and fabric cards: which pod has which, and the files that show them to its containers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.kubelet.processes.programs import EFA, GPU, RDMA
from cloudrec_sandbox.kubernetes.objects.quantities import requested

if TYPE_CHECKING:
    from collections.abc import Mapping

HAS_RDMA_DRIVER = "rdma_driver"  # member of a node's hardware: its image has the modules of its RDMA cards
_RESOURCES = {GPU: "nvidia.com/gpu", EFA: "vpc.amazonaws.com/efa"}
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_INFINIBAND_PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "InfiniBand",
    "rate": "400 Gb/sec (4X NDR)",
}
_EFA_PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "Unspecified",
    "rate": "100 Gb/sec",
}


@dataclass(kw_only=True)
class Sight:
    """A container's hardware: names below /dev, and each card's files in /sys/class/infiniband."""

    files: list[str] = field(default_factory=list)
    cards: dict[str, dict[str, str]] = field(default_factory=dict)


class Devices:
    """The hardware of one node, as far as device plugins offer it."""

    def __init__(self, hardware: Mapping[str, int]) -> None:
        self._hardware = hardware
        self._offered: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._taken: dict[str, dict[int, str]] = {}  # by resource: number -> uid of the pod
        self._drivers = {RDMA} if hardware.get(HAS_RDMA_DRIVER) else set()

    def has_driver(self, kind: str) -> bool:
        """Return whether the kernel modules of a kind of hardware are loaded."""
        return kind in self._drivers

    def load(self, kind: str) -> None:
        """Load the kernel modules of a kind of hardware."""
        self._drivers.add(kind)

    def unload(self, kind: str) -> None:
        """Unload the kernel modules of a kind of hardware, unless the node's own image has them."""
        if not self._hardware.get(HAS_RDMA_DRIVER):
            self._drivers.discard(kind)

    def offer(self, plugin: str, *, names: Mapping[str, int] | None = None) -> dict[str, int]:
        """Let a plugin offer the node's hardware; return what becomes allocatable.

        Args:
            plugin: GPU, EFA or RDMA.
            names: resources of an RDMA plugin, and how many pods can share the cards.
        """
        if plugin == RDMA:
            # Without the modules a card has no RDMA device, and no network device with a link type, so the
            # plugins find 0 devices (k8snetworkplumbingwg/sriov-network-device-plugin#146, #424).
            is_usable = self._hardware.get("infiniband") and self.has_driver(RDMA)
            found = dict(names or {}) if is_usable else {}
        else:
            count = self._hardware.get("gpus" if plugin == GPU else "efa", 0)
            found = {_RESOURCES[plugin]: count} if count else {}
        for name, count in found.items():
            self._offered[name], self._kinds[name] = count, plugin
        return found

    def offered(self, plugin: str) -> list[str]:
        """Return the names of the resources that a kind of plugin has offered."""
        return [name for name, kind in self._kinds.items() if kind == plugin]

    def given(self, name: str, count: int) -> None:
        """Make a resource allocatable without a plugin."""
        self._offered[name] = count
        self._kinds[name] = next((kind for kind, known in _RESOURCES.items() if known == name), "")
        if name.startswith("rdma/"):
            self._kinds[name] = RDMA

    def take(self, uid: str, container: Mapping[str, object]) -> Sight | str:
        """Allocate a container's devices; return what it sees, or an error message."""
        sight = Sight()
        for name, value in requested(container).items():
            if name not in self._offered:
                continue
            taken = self._taken.setdefault(name, {})
            free = [number for number in range(self._offered[name]) if number not in taken]
            if len(free) < value:
                return (
                    f"Allocate failed due to requested number of devices unavailable for {name}. "
                    f"Requested: {value:g}, Available: {len(free)}, which is unexpected"
                )
            numbers = free[: int(value)]
            taken.update(dict.fromkeys(numbers, uid))
            if numbers:
                self._show(sight, self._kinds[name], numbers)
        return sight

    def release(self, uid: str) -> None:
        """Free a pod's devices."""
        for taken in self._taken.values():
            for number in [number for number, owner in taken.items() if owner == uid]:
                del taken[number]

    def _show(self, sight: Sight, kind: str, numbers: list[int]) -> None:
        if kind == GPU:
            sight.files += [f"nvidia{number}" for number in numbers]
            sight.files += _CONTROL_FILES
        elif kind == EFA:
            for number in numbers:
                sight.files.append(f"infiniband/uverbs{number}")
                sight.cards[f"rdmap{16 + number}s27"] = _card("0xefa2", _EFA_PORT)
        elif kind == RDMA:
            # All cards: the shared plugin gives each pod every one of them.
            for number in range(self._hardware.get("infiniband", 0)):
                sight.files += [f"infiniband/uverbs{number}", f"infiniband/umad{number}"]
                sight.cards[f"mlx5_{number}"] = _card("MT4129", _INFINIBAND_PORT)


def _card(kind: str, port: Mapping[str, str]) -> dict[str, str]:
    return {
        "node_type": "1: CA",
        "hca_type": kind,
        **{f"ports/1/{name}": text for name, text in port.items()},
    }
