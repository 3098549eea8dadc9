"""The overhead of `cloudrec train SCRIPT` on this machine over torchrun of the same script, two processes.

    python -m benchmarks.user_script [--rounds 7]

Both are started as a user starts them, alternately. `start` is the time until rank 0's first line of Python,
`whole` the time until the command has ended. The script imports torch, forms a process group and ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

LIMIT_S = 0.5
ROUNDS = 7
SCRIPT = """
import os, time
if os.environ["RANK"] == "0":
    open(os.environ["BEGUN"], "w").write(str(time.time()))
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
NAMES = ("torchrun", "cloudrec")


def measure(name: str, folder: Path, number: int) -> tuple[float, float]:
    """Return the seconds until the script's first line, and until the command's end."""
    begun = folder / "begun"
    environment = {**os.environ, "CLOUDREC_HOME": str(folder / "home"), "BEGUN": str(begun)}
    python = Path(sys.executable).parent
    command = {
        "torchrun": [str(python / "torchrun"), "--standalone", "--nproc-per-node", "2", "job.py"],
        "cloudrec": [
            *(str(python / "cloudrec"), "train", "job.py", "--nproc-per-node", "2"),
            *("--name", f"run-{number}", "--yes"),
        ],
    }[name]
    started, clock = time.time(), time.perf_counter()
    subprocess.run(command, cwd=folder / "work", env=environment, check=True, capture_output=True)
    return float(begun.read_text()) - started, time.perf_counter() - clock


def main() -> int:
    """Print the table; return 1 if the median overhead is above the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.user_script")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "work").mkdir()
        (folder / "work" / "job.py").write_text(SCRIPT, encoding="utf-8")
        environment = {**os.environ, "CLOUDREC_HOME": str(folder / "home")}
        up = [str(Path(sys.executable).parent / "cloudrec"), "up", "local", "--yes"]
        subprocess.run(up, env=environment, check=True, capture_output=True)
        for name in NAMES:
            measure(name, folder, rounds)  # warm the file cache
        times = [{name: measure(name, folder, number) for name in NAMES} for number in range(rounds)]
    lines = [
        f"# `cloudrec train SCRIPT` beside torchrun, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}.",
        f"Medians of {rounds} alternating pairs; `python -m benchmarks.user_script`.",
        f"The load average was {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| | until the first line of Python, s | whole, s |",
        "|---|---|---|",
    ]
    for name in NAMES:
        start, whole = (statistics.median(each[name][part] for each in times) for part in (0, 1))
        lines.append(f"| {name} | {start:.2f} | {whole:.2f} |")
    over = [[each["cloudrec"][part] - each["torchrun"][part] for each in times] for part in (0, 1)]
    middle = [statistics.median(each) for each in over]
    spread = [
        f"{median:.2f} ({min(each):.2f} to {max(each):.2f})"
        for median, each in zip(middle, over, strict=True)
    ]
    lines += [
        f"| difference, pairwise | {spread[0]} | {spread[1]} |",
        "",
        f"Limit: {LIMIT_S} s of the whole, {'met' if middle[1] <= LIMIT_S else 'missed'}.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    name = f"user-script-{datetime.now(UTC):%Y-%m-%d}.md"
    (RESULTS / name).write_text(text, encoding="utf-8")
    return int(middle[1] > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
