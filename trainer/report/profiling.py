"""Profiles of steps: a torch profiler trace on request, and the seconds of each phase."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch
from torch import profiler

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

GPU_STEPS = 20  # on a GPU, one step in this many is measured, because it must wait for the device


class StepProfiler:
    """Records the steps START to END - 1, counted from 0, into a Chrome trace: one file per rank."""

    def __init__(self, steps: str | None, path: Path) -> None:
        self.path = path
        self._start, self._end = (int(part) for part in steps.split(":")) if steps else (-1, -1)
        self._profile: profiler.profile | None = None

    def before_step(self, step: int) -> None:
        """Start or end the recording if this step is its bound; `step` is the number of steps done."""
        if self._profile is None and self._start <= step < self._end:
            activities = [profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(profiler.ProfilerActivity.CUDA)
            self._profile = profiler.profile(activities=activities)
            self._profile.__enter__()
        elif step >= self._end:
            self.close()

    def close(self) -> None:
        """End the recording and write it, if there is one."""
        if self._profile is None:
            return
        self._profile.__exit__(None, None, None)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._profile.export_chrome_trace(str(self.path))
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"profile: {self.path} cannot be written: {error}") from error
        finally:
            self._profile, self._start, self._end = None, -1, -1  # once a run


class PhaseClock:
    """Mean seconds of each phase of a step since the last call of `take`."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._steps = 0
        self._running = False
        self._clock = 0.0

    def begin(self, step: int) -> None:
        """Start the clock of a step; on a GPU, not every step is measured."""
        self._running = not self._on_gpu or step % GPU_STEPS == 0
        if self._running:
            self._steps += 1
            self._clock = self._now()

    def end(self, phase: str) -> None:
        """End a phase and start the next one."""
        if self._running:
            now = self._now()
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._clock
            self._clock = now

    def take(self) -> dict[str, float]:
        """Return the mean seconds by phase, and reset them."""
        means = {phase: seconds / self._steps for phase, seconds in self._seconds.items()}
        self._seconds, self._steps = {}, 0
        return means

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def memory_bytes(device: torch.device) -> int:
    """Return this rank's peak of GPU memory, or on CPUs its resident memory now, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path to speak of
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int:
    """Return the memory of a GPU that is free, or that torch keeps for its next tensors."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
