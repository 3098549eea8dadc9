"""Counts GPUs and uses NCCL on one: `python -m cloudrec.agent.checks.nccl` prints one line of JSON.

A group of one rank is enough to see the transport that NCCL would use, since NCCL chooses it when it starts.
The choice is in NCCL's log, which the caller enables by NCCL_DEBUG.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta


def main() -> int:
    """Print the result; return 0, also if NCCL failed."""
    try:
        import torch  # noqa: PLC0415 - its absence is a result
    except ImportError:
        print(json.dumps({"gpus": -1, "built_for_cuda": False}))
        return 0
    answer: dict[str, object] = {
        "gpus": torch.cuda.device_count(),
        "built_for_cuda": torch.version.cuda is not None,
    }
    if answer["gpus"]:
        answer["version"] = ".".join(map(str, torch.cuda.nccl.version()))
        try:
            _reduce()
        except RuntimeError as error:
            answer["error"] = " ".join(str(error).split())[:300]
    sys.stderr.flush()
    print("\n" + json.dumps(answer), flush=True)
    return 0


def _reduce() -> None:
    import torch  # noqa: PLC0415 - as above
    from torch import distributed  # noqa: PLC0415 - as above

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    store = distributed.HashStore()
    distributed.init_process_group(
        "nccl", store=store, rank=0, world_size=1, timeout=timedelta(seconds=120), device_id=device
    )
    value = torch.ones(1024, device=device)
    distributed.all_reduce(value)
    torch.cuda.synchronize()
    distributed.destroy_process_group()
    if float(value.sum()) != value.numel():
        raise RuntimeError(f"an all-reduce over one rank gave {float(value.sum())}, not {value.numel()}")


if __name__ == "__main__":
    sys.exit(main())
