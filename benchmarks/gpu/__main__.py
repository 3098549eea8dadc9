"""Measures on one NVIDIA GPU, part by part: `python -m benchmarks.gpu [PART ...] [--results DIR]`.

Every part takes less than 8 minutes on an H100 and writes DIR/PART.json, so that short loans of a card are
enough: without a PART, those that have no file yet are measured. `--page` writes the table of all parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu import ceilings, page, references, steps, whole
from benchmarks.gpu.work import GpuWork, Rate, rate
from benchmarks.machine import describe_machine, today

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
OURS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "bf16, not compiled": {"precision": "bf16", "compile": "off"},
    "bf16, no CUDA graphs": {"precision": "bf16", "cuda_graphs": "off"},
    "bf16, torchrec's pipeline": {"precision": "bf16", "pipeline": "sparse_dist"},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the parts, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--results", type=Path, default=RESULTS / today(), metavar="DIR")
    parser.add_argument("--page", action="store_true", help="write DIR.md from the parts that are there")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.results
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.parts or [part for part in PARTS if not (folder / f"{part}.json").exists()]:
        started = time.perf_counter()
        measured = PARTS[name]()
        measured |= {"card": torch.cuda.get_device_name(), "machine": describe_machine(), "date": today()}
        (folder / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {time.perf_counter() - started:.0f} s\n{json.dumps(measured, indent=1)}", flush=True)
    if arguments.page:
        folder.with_suffix(".md").write_text(page.write(folder), encoding="utf-8")


def _step() -> dict[str, Any]:
    rates: dict[str, Any] = {}
    for batch in (8192, 65_536):
        work = GpuWork(batch_size=batch)
        for name, settings in OURS.items():
            rates[f"{name}, batch {batch}"] = _tried(lambda: steps.measure(work, **settings))  # noqa: B023
    return {"samples_per_s": rates}


def _references() -> dict[str, Any]:
    work = GpuWork(batches_in_memory=4)
    rates: dict[str, Any] = {}
    for precision in ("fp32", "tf32"):
        rates[f"golden_training, {precision}"] = _tried(lambda: _rate(references.golden, work, precision))  # noqa: B023
    for precision in ("fp32", "bf16"):
        rates[f"nn.EmbeddingBag, {precision}"] = _tried(
            lambda: _rate(references.plain, work, precision)  # noqa: B023
        )
    return {"samples_per_s": rates}


def _rate(reference: Callable[..., Any], work: GpuWork, precision: str) -> Rate:
    with reference(work, precision=precision) as made:
        return rate(made, work)


def _tried(measure: Callable[[], Rate]) -> list[float] | str:
    """Return the rates of the rounds, or the error: one that does not run must not hide the others."""
    try:
        return list(measure().rounds)
    except Exception as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def _profile() -> dict[str, Any]:
    return {name: steps.profile(GpuWork(), **OURS[name]) for name in ("bf16", "bf16, not compiled")}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "ceilings": ceilings.measure,
    "one_hot": whole.one_hot,
    "multi_hot": whole.multi_hot,
    "step": _step,
    "references": _references,
    "profile": _profile,
}

if __name__ == "__main__":
    main()
