"""A short job instead of the trainer: it checks an all-reduce and measures an all-to-all between all ranks.

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
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudrec.home import write_atomically
from cloudrec_contract.exit_codes import FAILED, FINISHED, UNFIT_NODE

_SIZES_MIB = (1, 4, 16, 64)  # that each rank sends in one exchange
_CPU_SIZES_MIB = (1, 4)
_ROUNDS = 5
_TIMEOUT_S = 120.0
_GB = 1e9


def main(arguments: list[str]) -> int:
    """Run one rank; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent smoke", allow_abbrev=False)
    parser.add_argument("--config", help="the trainer's configuration, which is not read")
    parser.add_argument("--output_dir", type=Path, default=Path())
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--least_share", type=float, default=0.0, help="of the expected bandwidth [0: none]")
    options, _ = parser.parse_known_args(arguments)  # launchers also pass the trainer's other flags
    options.output_dir.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    try:
        summary = _run(options.device)
    except (RuntimeError, ValueError, ImportError) as error:
        words = " ".join(str(error).split())[:500]
        print(f"error: {words}", flush=True)
        if rank == 0:
            _write(options.output_dir, {"status": "failed", "error": words})
        return FAILED
    problem = _problem(summary, options.least_share)
    if rank == 0:
        _write(
            options.output_dir, {"status": "failed" if problem else "finished", **summary, "error": problem}
        )
        print(json.dumps(summary["bandwidth"]), flush=True)
    if problem:
        print(f"error: {problem}", flush=True)
    return UNFIT_NODE if problem else FINISHED


def _run(device_choice: str) -> dict[str, Any]:
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


def _measure(torch: Any, distributed: Any, device: Any) -> dict[str, Any]:  # noqa: ANN401 - torch is seen as Any
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
    sizes = _SIZES_MIB if device.type == "cuda" else _CPU_SIZES_MIB
    bandwidth = [_exchange(torch, distributed, device, mib) for mib in sizes]
    nodes = len({(each["host"], each["node"]) for each in ranks})
    return {
        "world_size": size,
        "nodes": nodes,
        "ranks": ranks,
        "step": len(bandwidth),
        "samples_seen": 0,
        "all_reduce": int(one.item()),
        "bandwidth": bandwidth,
        "best_gb_s": max((each["gb_s"] for each in bandwidth), default=None) if size > 1 else None,
        "expected_gb_s": _expected(nodes),
    }


def _exchange(torch: Any, distributed: Any, device: Any, mib: int) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the measurement of an all-to-all: seconds, and the GB/s that each rank sends.

    Both are the median of several rounds on the slowest rank. The first round is not counted.
    """
    size = distributed.get_world_size()
    count = mib * 2**20 // 4 // size * size
    given = torch.full((count,), float(distributed.get_rank()), device=device)
    taken = torch.empty_like(given)
    seconds = []
    for _ in range(_ROUNDS + 1):
        distributed.barrier()
        started = time.perf_counter()
        distributed.all_to_all_single(taken, given)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    # Each rank sends its own number to all others, so a wrong route shows as a wrong number.
    expected = torch.arange(size, device=device, dtype=taken.dtype).repeat_interleave(count // size)
    if not torch.equal(taken, expected):
        raise ValueError(f"an all-to-all of {mib} MiB gave other numbers than were sent")
    median = torch.tensor([statistics.median(seconds[1:])], device=device)
    distributed.all_reduce(median, op=distributed.ReduceOp.MAX)
    sent = given.numel() * 4 * (size - 1) / size
    return {"mib": mib, "seconds": float(median), "gb_s": sent / float(median) / _GB}


def _expected(nodes: int) -> float | None:
    """Return the expected bandwidth of a rank in GB/s, from the environment; None without one."""
    name = "CROSS_NODE_BANDWIDTH" if nodes > 1 else "INTRA_NODE_BANDWIDTH"
    try:
        return float(os.environ[name]) or None
    except (KeyError, ValueError):
        return None


def _problem(summary: dict[str, Any], least_share: float) -> str | None:
    best, expected = summary["best_gb_s"], summary["expected_gb_s"]
    if best is None or expected is None or best >= least_share * expected:
        return None
    return f"the exchange reached {best:.2f} GB/s a rank; the limit is {least_share:.0%} of {expected:g} GB/s"


def _write(folder: Path, summary: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        start = {"kind": "start", "step": 0, "attempt": 0, "world_size": summary.get("world_size", 0)}
        lines = [start] + [
            {"kind": "smoke", "step": step, **each}
            for step, each in enumerate(summary.get("bandwidth", []), 1)
        ]
        metrics.writelines(json.dumps({**line, "time": time.time()}) + "\n" for line in lines)
    document = {"schema_version": 1, "restarts": 0, **summary}
    write_atomically(folder / "summary.json", json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
