"""A fake agent for tests of the driver: each start exits with the next code in the machine's `codes`."""

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
    """Record the start, and end with the given code."""
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
