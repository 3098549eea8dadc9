"""What a GPU can do: memory bandwidth and peak rates, from NVIDIA's data sheets."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_WHOLE = 0.85  # of a model's memory: below it, a machine has a part of the GPU


@dataclass(frozen=True, kw_only=True)
class GpuRates:
    """The rates of one GPU, or of the part of one that a machine has.

    Attributes:
        memory_gb_s: bandwidth of its memory, in GB/s.
        bf16_tflops: dense matrix products in bf16, in TFLOP/s; None if it has none.
        tf32_tflops: dense matrix products in TF32; None if it has none.
        fp32_tflops: products in fp32 without tensor cores.
        source: the data sheet and its date.
    """

    memory_gb_s: float
    bf16_tflops: float | None
    tf32_tflops: float | None
    fp32_tflops: float
    source: str

    def tflops(self, precision: str) -> float:
        """Return the peak rate at a trainer's precision; that of fp32 where the GPU lacks the precision."""
        found = {"bf16": self.bf16_tflops, "tf32": self.tf32_tflops}.get(precision)
        return self.fp32_tflops if found is None else found


def gpu_rates(gpu: str, memory_gib: float) -> GpuRates | None:
    """Return the rates of a GPU model with so much memory; None if they are not known.

    A machine with a part of a GPU has less memory than the model, and the same part of its rates.
    """
    rows = [row for row in _table() if row["gpu"] == gpu]
    if not rows:
        return None
    # Vendors state the memory of one model with and without what the system keeps: the nearest row is meant.
    row = min(rows, key=lambda each: abs(float(each["memory_gib"]) - memory_gib))
    share = memory_gib / float(row["memory_gib"])
    part = share if share < _WHOLE else 1.0

    def rate(name: str) -> float | None:
        return float(row[name]) * part if row[name] else None

    return GpuRates(
        memory_gb_s=float(row["memory_gb_s"]) * part,
        bf16_tflops=rate("bf16_tflops"),
        tf32_tflops=rate("tf32_tflops"),
        fp32_tflops=float(row["fp32_tflops"]) * part,
        source=f"{row['source']}, {row['as_of']}",
    )


@cache
def _table() -> tuple[dict[str, str], ...]:
    text = files("cloudrec.planning").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))
