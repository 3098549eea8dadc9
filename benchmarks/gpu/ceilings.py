"""The card's ceilings: matrix products in each precision, device memory, and copies from pinned memory."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 8192
BYTES = 4 << 30
PINNED = 256 << 20


def measure() -> dict[str, float]:
    """Return TFLOP/s by precision and GB/s by way."""
    found = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        found[f"gemm_{name}_tflops"] = _products(dtype)
    torch.set_float32_matmul_precision("high")
    found["gemm_tf32_tflops"] = _products(torch.float32)
    torch.set_float32_matmul_precision("highest")
    source = torch.empty(BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    found["copy_gb_s"] = 2 * BYTES / _seconds(lambda: target.copy_(source)) / 1e9  # read and written
    pinned = torch.empty(PINNED, dtype=torch.uint8, pin_memory=True)
    found["to_device_gb_s"] = (
        PINNED / _seconds(lambda: target[:PINNED].copy_(pinned, non_blocking=True)) / 1e9
    )
    found["from_device_gb_s"] = (
        PINNED / _seconds(lambda: pinned.copy_(target[:PINNED], non_blocking=True)) / 1e9
    )
    return found


def _products(dtype: torch.dtype) -> float:
    one, other = (torch.randn(SIZE, SIZE, device="cuda").to(dtype) for _ in range(2))
    return 2 * SIZE**3 / _seconds(lambda: one @ other) / 1e12


def _seconds(work: Callable[[], object]) -> float:
    seconds = []
    for number in range(13):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if number >= 3:
            seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds)
