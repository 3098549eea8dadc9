"""Checks before this machine is used: disk space, memory, GPUs and the trainer's packages."""

from __future__ import annotations

import importlib.util
import shutil
from typing import TYPE_CHECKING

from cloudrec.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.providers.local.nodes import LocalHardware
    from cloudrec.providers.local.settings import LocalSettings

_GIB = 1 << 30
_MEMORY_GIB = 2.0  # one small trainer process with torch loaded


def findings(settings: LocalSettings, storage: Path, machine: LocalHardware) -> Sequence[Finding]:
    """Return the findings about disk, memory, GPUs, the trainer's packages, and Ray if it is requested."""
    ray = [_ray()] if settings.ray else []
    return [_disk(settings, storage), _memory(machine), _gpus(machine), _trainer(), *ray]


def _disk(settings: LocalSettings, storage: Path) -> Finding:
    folder = next(parent for parent in (storage, *storage.parents) if parent.exists())
    free = shutil.disk_usage(folder).free / _GIB
    return Finding(
        check="disk",
        ok=free >= settings.min_free_gib,
        found=f"{free:.1f} GiB free at {folder}",
        needed=f"{settings.min_free_gib:g} GiB",
        remedy="free some space, or name another folder: cluster.settings.storage",
    )


def _memory(machine: LocalHardware) -> Finding:
    return Finding(
        check="memory",
        ok=machine.memory_gib >= _MEMORY_GIB,
        found=f"{machine.memory_gib:g} GiB",
        needed=f"{_MEMORY_GIB:g} GiB",
        remedy="use a machine with more memory",
        blocks=False,
    )


def _gpus(machine: LocalHardware) -> Finding:
    found = f"{len(machine.gpus)} x {machine.gpus[0]}" if machine.gpus else "none: training runs on the CPU"
    return Finding(check="gpus", ok=True, found=found)


def _trainer() -> Finding:
    missing = [name for name in ("torch", "torchrec", "fbgemm_gpu") if importlib.util.find_spec(name) is None]
    return Finding(
        check="trainer",
        ok=not missing,
        found=f"not installed: {', '.join(missing)}"
        if missing
        else "torch, torchrec and fbgemm are installed",
        needed="the trainer's packages",
        remedy="`make setup` in a clone, or pip install 'cloudrec[trainer]' (see README, Install)",
        blocks=False,  # `up` and `data` work without the packages; `train` checks for them itself
    )


def _ray() -> Finding:
    found = importlib.util.find_spec("ray") is not None
    return Finding(
        check="ray",
        ok=found,
        found="installed" if found else "not installed",
        needed="ray[default]",
        remedy="pip install 'cloudrec[ray]'",
    )
