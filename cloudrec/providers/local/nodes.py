"""This machine's hardware: cores, memory and GPUs; read without torch, which takes seconds to import."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cloudrec.engine.graph import Properties

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class LocalHardware(Properties):
    """The hardware that a run on this machine may use.

    Attributes:
        hostname: the machine's name.
        cores: the cores that this process may use.
        memory_gib: main memory in GiB, within the container's limit.
        gpus: the model of each NVIDIA GPU.
    """

    hostname: str
    cores: int
    memory_gib: float
    gpus: list[str]


def inspect() -> LocalHardware:
    """Return this machine's hardware, within the limits of its container and of taskset."""
    return LocalHardware(
        hostname=platform.node(),
        cores=_cores(),
        memory_gib=round(_memory_bytes() / _GIB, 1),
        gpus=_gpus(),
    )


def _cores() -> int:
    """Return the number of cores that this process may use, by its affinity and its cgroup's quota."""
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


def _gpus() -> list[str]:
    """Return the model of each NVIDIA GPU from `nvidia-smi`; empty if the tool does not work."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if listed.returncode != 0:
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]
