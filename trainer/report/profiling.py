"""Profiles of steps: a torch profiler trace on request, and the seconds of each phase."""

from __future__ import annotations

import os
import time
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import profiler

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPU_STEPS = 20  # on a GPU, one step in this many is measured: its marks take a little of the host's time


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


class DeviceMark(Protocol):
    """A point in a GPU's work, as torch.cuda.Event."""

    def record(self) -> None:
        """Put the mark behind all work so far."""
        ...

    def query(self) -> bool:
        """Whether the GPU has come to it."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:  # noqa: ANN401 - a mark of the same kind
        """Return the milliseconds to a later mark; both must have been reached."""
        ...


class PhaseClock:
    """Mean seconds of each phase of a step since the last call of `take`.

    On a GPU the phases are those of its work, between marks that are read when it has come to them: no step
    waits for it.
    """

    def __init__(self, device: torch.device, mark: Callable[[], DeviceMark] | None = None) -> None:
        """`mark` makes the marks of a GPU's work; by default, events of CUDA."""
        self._on_gpu = device.type == "cuda"
        self._mark = mark or (lambda: torch.cuda.Event(enable_timing=True))
        self._marked: list[
            tuple[str, DeviceMark]
        ] = []  # of this step: each phase's end; the first is its begin
        self._pending: deque[list[tuple[str, DeviceMark]]] = deque()  # steps that the GPU may not have done
        self._seconds: dict[str, float] = {}
        self._steps = 0
        self._running = False
        self._clock = 0.0

    def begin(self, step: int) -> None:
        """Start the clock of a step; on a GPU, not every step is measured."""
        self._running = not self._on_gpu or step % GPU_STEPS == 0
        if not self._running:
            return
        if self._on_gpu:
            self._marked = []
            self._pending.append(self._marked)
            self._set_mark("")
        else:
            self._steps += 1
            self._clock = time.perf_counter()

    def end(self, phase: str) -> None:
        """End a phase and start the next one."""
        if not self._running:
            return
        if self._on_gpu:
            self._set_mark(phase)
            return
        now = time.perf_counter()
        self._add(phase, now - self._clock)
        self._clock = now

    def take(self) -> dict[str, float]:
        """Return the mean seconds by phase, and reset them; a GPU's last steps may count in the next call."""
        while self._pending and self._pending[0][-1][1].query():
            marks = self._pending.popleft()
            self._steps += 1
            for (_, start), (phase, end) in pairwise(marks):
                self._add(phase, start.elapsed_time(end) / 1000)
        means = {phase: seconds / self._steps for phase, seconds in self._seconds.items()}
        self._seconds, self._steps = {}, 0
        return means

    def _set_mark(self, phase: str) -> None:
        mark = self._mark()
        mark.record()
        self._marked.append((phase, mark))

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds


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
