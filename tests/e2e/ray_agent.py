"""Stands for an agent in tests of the driver: ends as its machine's file `codes` says, start by start."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

_WORK = Path(os.environ["CLOUDREC_WORK"])


def _stop(_number: int, _frame: object) -> None:
    time.sleep(0.5)  # a checkpoint
    (_WORK / "saved").touch()
    sys.exit(75)


def main() -> int:
    """Note the start, and end as told."""
    signal.signal(signal.SIGTERM, _stop)
    starts = _WORK / "starts"
    before = len(starts.read_text().splitlines()) if starts.exists() else 0
    with starts.open("a") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    codes = (_WORK / "codes").read_text().split()
    code = codes[min(before, len(codes) - 1)]
    if code == "wait":
        time.sleep(300)
    if code.startswith("machine"):  # until an agent has begun there
        while not (_WORK.parent / code / "starts").exists():
            time.sleep(0.2)
        code = "0"
    time.sleep(0.5)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
