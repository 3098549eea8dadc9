"""Reads a node's hardware from the system's files below a root: "/", or a folder of a test."""

from __future__ import annotations

import re
import resource
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

_GIB = 2**30
_DMA_BUF_KERNEL = (5, 12)


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of an RDMA card.

    Args:
        name: card and port, such as mlx5_0/1.
        state: its state in sysfs, such as ACTIVE.
        link: its link layer: InfiniBand, Ethernet, Unspecified.
    """

    name: str
    state: str
    link: str

    @property
    def is_active(self) -> bool:
        """Whether its state is ACTIVE."""
        return self.state == "ACTIVE"

    @property
    def is_infiniband(self) -> bool:
        """Whether its link layer is InfiniBand."""
        return self.link == "InfiniBand"


def matches(root: Path, pattern: str) -> list[str]:
    """Return the files that match an absolute glob pattern, sorted."""
    return sorted(str(path) for path in root.glob(pattern.lstrip("/")))


def infiniband_ports(root: Path) -> list[Port]:
    """Return all ports of all RDMA cards."""
    return [
        Port(
            name=f"{path.parents[1].name}/{path.name}",
            state=_text(path / "state").rpartition(":")[2].strip(),
            link=_text(path / "link_layer"),
        )
        for path in sorted(root.glob("sys/class/infiniband/*/ports/*"))
    ]


def mtu(root: Path, interface: str) -> int | None:
    """Return the MTU of a network interface in bytes; None if there is no such interface."""
    return _number(root / "sys/class/net" / interface / "mtu")


def free_huge_pages(root: Path) -> int:
    """Return the number of free huge pages of 2 MiB."""
    return _number(root / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") or 0


def socket_memory(root: Path) -> int | None:
    """Return the bytes that a socket may have besides its buffers; None if this pod cannot see the limit."""
    return _number(root / "proc/sys/net/core/optmem_max")


def gpu_memory_access(root: Path) -> Literal["", "dma-buf", "nvidia_peermem"]:
    """Return by what network cards can read and write GPU memory; empty if they cannot.

    NVIDIA's documentation of the GPU Operator ("GPUDirect RDMA and GPUDirect Storage") has the requirements:
    DMA-BUF needs the open kernel modules and Linux 5.12, and it makes nvidia_peermem needless.
    """
    if _has_module(root, "nvidia_peermem"):
        return "nvidia_peermem"
    is_open = "Open Kernel Module" in _text(root / "proc/driver/nvidia/version")
    return "dma-buf" if is_open and _kernel(root) >= _DMA_BUF_KERNEL else ""


def _has_module(root: Path, name: str) -> bool:
    loaded = (line.partition(" ")[0] for line in _text(root / "proc/modules").splitlines())
    return (root / "sys/module" / name).exists() or name in loaded


def _kernel(root: Path) -> tuple[int, ...]:
    """Return the numbers of the kernel's release, such as (6, 8); none if it is unknown."""
    found = re.match(r"(\d+)\.(\d+)", _text(root / "proc/sys/kernel/osrelease"))
    return tuple(int(part) for part in found.groups()) if found else ()


def has_capability(root: Path, number: int) -> bool:
    """Return whether this process has a capability in effect."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def memlock() -> int:
    """Return the number of bytes that this process may lock in memory; -1 for no limit."""
    # A process may raise its soft limit up to the hard one.
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return -1 if resource.RLIM_INFINITY in (soft, hard) else hard


def shared_memory_gib(root: Path) -> float:
    """Return the size of /dev/shm in GiB; 0 if it does not exist."""
    try:
        return round(shutil.disk_usage(root / "dev/shm").total / _GIB, 2)
    except OSError:
        return 0.0


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
