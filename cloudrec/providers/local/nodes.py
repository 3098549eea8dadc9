"""What this machine has: cores, memory, GPUs; read without torch, which takes seconds to import."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The hardware that a run on this machine may use."""

    hostname: str
    cores: int
    memory_gib: float
    gpus: tuple[str, ...]

    def as_properties(self) -> dict[str, object]:
        """Return it as a resource's properties."""
        return {
            "hostname": self.hostname,
            "cores": self.cores,
            "memory_gib": self.memory_gib,
            "gpus": list(self.gpus),
        }


def inspect() -> Machine:
    """Read this machine's hardware, within the limits that a container or taskset sets."""
    return Machine(
        hostname=platform.node(),
        cores=_cores(),
        memory_gib=round(_memory_bytes() / _GIB, 1),
        gpus=_gpus(),
    )


def _cores() -> int:
    """Count the cores that this process may run on, and no more than its cgroup's share."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _gpus() -> tuple[str, ...]:
    """Name each NVIDIA GPU, as the driver's own tool lists them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if listed.returncode != 0:
        return ()
    return tuple(line.strip() for line in listed.stdout.splitlines() if line.strip())
