"""The trainer's own step on batches in memory, and the device's time in it by kernel."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import profiler

from benchmarks.gpu.work import GpuWork, Rate, rate
from benchmarks.ours import open_learner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.loop.pipeline import TrainStep

PROFILED = 6
SHOWN = 40


def measure(work: GpuWork, **settings: Any) -> Rate:  # noqa: ANN401 - the trainer's
    """Return the samples a second; `settings` are the trainer's."""
    with open_learner(work, device="cuda", **settings) as (learner, stream):
        return rate(_steps(learner, stream), work)


def profile(work: GpuWork, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - the trainer's
    """Return microseconds a step of each kernel, of all, and of the step from end to end."""
    with open_learner(work, device="cuda", **settings) as (learner, stream):
        steps = _steps(learner, stream)
        for _ in islice(steps, work.warmup_steps):
            pass
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as recorded:
            start.record()
            for _ in islice(steps, PROFILED):
                pass
            end.record()
            torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in recorded.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name] += event.device_time_total if hasattr(event, "device_time_total") else 0
            calls[event.name] += 1
    return {
        "step_us": start.elapsed_time(end) * 1e3 / PROFILED,
        "kernels_us": sum(spent.values()) / PROFILED,
        "kernels": [
            (name[:110], spent[name] / PROFILED, calls[name] / PROFILED)
            for name, _ in spent.most_common(SHOWN)
        ],
    }


def _steps(learner: Any, stream: Any) -> Iterator[TrainStep]:  # noqa: ANN401 - a learner and its batches
    return learner.pipeline.steps(iter(stream), 0)
