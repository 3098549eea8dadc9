"""A short job instead of the trainer: it checks that all ranks communicate, and measures how fast.

`python -m cloudrec.agent.checks.smoke --output_dir DIR` runs under torchrun, on any launcher, or alone. Rank
0 writes the trainer's files: metrics.jsonl, and summary.json with status "finished", or "failed" and the
error.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.agent.checks.smoke_report import Bandwidth, SmokeReport
from cloudrec.home import write_atomically
from cloudrec_contract.exit_codes import FAILED, FINISHED, UNFIT_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIZES_MIB = (1, 16, 256)  # that each rank gives; small ones show the latency, large ones the bandwidth
_CPU_SIZES_MIB = (1, 4)
_ROUNDS = 5
_TIMEOUT_S = 120.0
_GB = 1e9
_INTRA, _CROSS = "INTRA_NODE_BANDWIDTH", "CROSS_NODE_BANDWIDTH"  # of a rank, in bytes a second


def main(arguments: list[str]) -> int:
    """Run one rank; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent smoke", allow_abbrev=False)
    parser.add_argument("--config", help="the trainer's configuration, which is not read")
    parser.add_argument("--output_dir", type=Path, default=Path())
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--least_share", type=float, default=0.0, help="of the hardware's limit [0: none]")
    options, _ = parser.parse_known_args(arguments)  # launchers also pass the trainer's other flags
    options.output_dir.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    try:
        report, measured = _run(options.device)
    except (RuntimeError, ValueError, ImportError) as error:
        words = " ".join(str(error).split())[:500]
        print(f"error: {words}", flush=True)
        if rank == 0:
            _write(options.output_dir, {"status": "failed", "error": words}, ())
        return FAILED
    problem = _problem(report, options.least_share)
    if rank == 0:
        summary = {"status": "failed" if problem else "finished", "error": problem, "samples_seen": 0}
        _write(options.output_dir, {**summary, "step": len(measured), **report.document()}, measured)
        print(json.dumps([asdict(each) for each in report.bandwidths]), flush=True)
    if problem:
        print(f"error: {problem}", flush=True)
    return UNFIT_NODE if problem else FINISHED


def _run(device_choice: str) -> tuple[SmokeReport, tuple[Bandwidth, ...]]:
    """Return the report, and each measurement."""
    import torch  # noqa: PLC0415 - seconds, and only where ranks are
    from torch import distributed  # noqa: PLC0415 - as above

    cuda = torch.cuda.is_available() if device_choice == "auto" else device_choice == "cuda"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    options: dict[str, Any] = {"timeout": timedelta(seconds=_TIMEOUT_S)}
    if "RANK" not in os.environ:
        options |= {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group("nccl" if cuda else "gloo", **options)
    try:
        return _measure(torch, distributed, device)
    finally:
        distributed.destroy_process_group()


def _measure(
    torch: Any,  # noqa: ANN401 - torch is seen as Any
    distributed: Any,  # noqa: ANN401 - as above
    device: Any,  # noqa: ANN401 - as above
) -> tuple[SmokeReport, tuple[Bandwidth, ...]]:
    rank, size = distributed.get_rank(), distributed.get_world_size()
    here = {
        "rank": rank,
        "host": socket.gethostname(),
        "node": os.environ.get("NODE_NAME", ""),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
    }
    print(f"rank {rank} of {size} on {here['host']} ({here['device']})", flush=True)
    ranks: list[Any] = [None] * size
    distributed.all_gather_object(ranks, here)
    one = torch.ones(1, device=device)
    distributed.all_reduce(one)
    if int(one.item()) != size:
        raise ValueError(f"an all-reduce of ones over {size} ranks gave {one.item():g}")
    nodes = len({(each["host"], each["node"]) for each in ranks})
    sizes = _SIZES_MIB if device.type == "cuda" else _CPU_SIZES_MIB
    measured = [
        operation(torch, distributed, device, mib, nodes)
        for operation in (_all_to_all, _all_reduce)
        for mib in (sizes if size > 1 else ())
    ]
    best = {
        each.operation: each for each in sorted(measured, key=lambda each: each.gb_s)
    }  # the last of each operation is its best
    report = SmokeReport(
        world_size=size,
        nodes=nodes,
        ranks=tuple(ranks),
        all_reduce=int(one.item()),
        bandwidths=tuple(best[name] for name in sorted(best, reverse=True)),
    )
    return report, tuple(measured)


def _all_to_all(torch: Any, distributed: Any, device: Any, mib: int, nodes: int) -> Bandwidth:  # noqa: ANN401 - as above
    """Measure an exchange of all ranks with all others."""
    size = distributed.get_world_size()
    count = mib * 2**20 // 4 // size * size
    given = torch.full((count,), float(distributed.get_rank()), device=device)
    taken = torch.empty_like(given)
    seconds = _median_s(torch, distributed, device, lambda: distributed.all_to_all_single(taken, given))
    # Each rank sends its own number to all others, so a wrong route shows as a wrong number.
    expected = torch.arange(size, device=device, dtype=taken.dtype).repeat_interleave(count // size)
    if not torch.equal(taken, expected):
        raise ValueError(f"an all-to-all of {mib} MiB gave other numbers than were sent")
    # The slowest part counts: what goes to other nodes, or within one node to all others.
    apart = size - size // nodes if nodes > 1 else size - 1
    sent = given.numel() * 4 * apart / size
    limit = _limit(_CROSS) if nodes > 1 else _half(_limit(_INTRA))
    return Bandwidth(operation="all-to-all", mib=mib, gb_s=sent / seconds / _GB, expected_gb_s=limit)


def _all_reduce(torch: Any, distributed: Any, device: Any, mib: int, nodes: int) -> Bandwidth:  # noqa: ANN401 - as above
    """Measure a sum over all ranks; the result is the bus bandwidth of nccl-tests (doc/PERFORMANCE.md)."""
    size = distributed.get_world_size()
    values = torch.zeros(mib * 2**20 // 4, device=device)
    seconds = _median_s(torch, distributed, device, lambda: distributed.all_reduce(values))
    moved = 2 * (size - 1) / size * values.numel() * 4
    limit = _half(_limit(_INTRA))
    if nodes > 1 and (cross := _limit(_CROSS)) is not None:
        # All ranks of a node share its cards: a ring enters and leaves each node once for each of them.
        limit = min(cross * (size // nodes), limit) if limit is not None else cross * (size // nodes)
    return Bandwidth(operation="all-reduce", mib=mib, gb_s=moved / seconds / _GB, expected_gb_s=limit)


def _median_s(torch: Any, distributed: Any, device: Any, operation: Callable[[], object]) -> float:  # noqa: ANN401 - as above
    """Return the median of several rounds on the slowest rank, in seconds; the first is not counted."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        distributed.barrier()
        started = time.perf_counter()
        operation()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    median = torch.tensor([statistics.median(seconds[1:])], device=device)
    distributed.all_reduce(median, op=distributed.ReduceOp.MAX)
    return float(median)


def _limit(name: str) -> float | None:
    """Return a bandwidth of a rank in GB/s; None if the environment, which has bytes a second, lacks it."""
    try:
        return float(os.environ[name]) / _GB or None
    except (KeyError, ValueError):
        return None


def _half(both_ways: float | None) -> float | None:
    """Return one direction of a bandwidth that is stated for both, as NVLink's is."""
    return both_ways / 2 if both_ways is not None else None


def _problem(report: SmokeReport, least_share: float) -> str | None:
    slow = [
        f"the {each.operation} reached {each.gb_s:.2f} GB/s; the limit is {least_share:.0%} of "
        f"{each.expected_gb_s:g} GB/s"
        for each in report.bandwidths
        if each.expected_gb_s is not None and each.gb_s < least_share * each.expected_gb_s
    ]
    return "; ".join(slow) or None


def _write(folder: Path, summary: dict[str, Any], measured: Sequence[Bandwidth]) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        start = {"kind": "start", "step": 0, "attempt": 0, "world_size": summary.get("world_size", 0)}
        lines = [start] + [
            {"kind": "smoke", "step": step, **asdict(each)} for step, each in enumerate(measured, 1)
        ]
        metrics.writelines(json.dumps({**line, "time": time.time()}) + "\n" for line in lines)
    document = {"schema_version": 1, "restarts": 0, **summary}
    write_atomically(folder / "summary.json", json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
