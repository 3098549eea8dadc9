"""What a figure was measured on, without names or paths."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path


def describe_machine() -> str:
    """One sentence: processor, cores, memory, versions."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    versions = ", ".join(
        f"{name} {_version(name)}"
        for name in ("torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu")
        if _version(name)
    )
    return (
        f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB; "
        f"Python {platform.python_version()}, {versions}."
    )


def has_bf16() -> bool:
    """Whether the processor multiplies bf16 itself."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags))


def today() -> str:
    """The date that results are named by."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
